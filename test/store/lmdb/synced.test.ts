import { execFileSync, spawn } from "node:child_process";
import { closeSync, existsSync, fsyncSync, openSync, writeSync } from "node:fs";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";
import { expect, onTestFinished, test } from "vitest";
import { dataFile, temporaryFolder } from "../commits.js";

/*
 * That an answer means the disk, and not the page cache. What the kernel holds of a file and has not written yet it
 * gives up when the file is cut off, and counts as `cancelled_write_bytes` of the process that cut it off. So right after
 * the answer the store's file is cut off under the store: 0 means that nothing of it was in memory only.
 *
 * This shows that the kernel had handed every page of the file to the device and heard that it was done. It does not show
 * that the device kept it (a disk may lie about its own cache), nor that a directory entry was synced.
 */

const fixture = (name: string) => fileURLToPath(new URL(`../fixtures/${name}`, import.meta.url));

function unsyncedBytes(file: string): number {
  return Number(execFileSync(process.execPath, [fixture("unsynced-bytes.mjs"), file], { encoding: "utf8" }));
}

/** A plain file of ten pages: with and without a sync the count must differ, or this file system does not say. */
function unsyncedOfPlainFile(folder: string, sync: boolean): number {
  const file = join(folder, `plain ${sync}`);
  const descriptor = openSync(file, "w");
  writeSync(descriptor, new Uint8Array(40_960).fill(1));
  if (sync) fsyncSync(descriptor);
  closeSync(descriptor);
  return unsyncedBytes(file);
}

const canBeSeen = (folder: string) =>
  existsSync("/proc/self/io") && unsyncedOfPlainFile(folder, false) > 0 && unsyncedOfPlainFile(folder, true) === 0;

for (const [last, what] of [
  ["record", "a record"],
  ["rows", "a change of rows"],
  ["clear", "the clearing of a journal"],
  ["commit", "a commit"],
  ["delete", "a deletion"],
] as const) {
  test(`when ${what} is answered, nothing of the store is in memory only`, async ({ skip }) => {
    const folder = temporaryFolder();
    skip(!canBeSeen(folder), "This file system does not say what it has not written yet, as one in memory does not.");
    const path = join(folder, "store");
    const child = spawn(process.execPath, [fixture("write-and-wait.mjs"), path, last], {
      stdio: ["ignore", "pipe", "inherit"],
    });
    onTestFinished(() => void child.kill("SIGKILL"));
    for await (const line of createInterface({ input: child.stdout })) {
      expect(line).toBe("answered");
      break;
    }
    expect(unsyncedBytes(dataFile(path))).toBe(0);
  });
}
