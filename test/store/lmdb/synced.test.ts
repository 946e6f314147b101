import { spawn } from "node:child_process";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";
import { expect, onTestFinished, test } from "vitest";
import { dataFile, temporaryFolder } from "../commits.js";
import { canBeSeen, unsyncedBytes } from "../unsynced.js";

/*
 * That an answer means the disk, and not the page cache: right after it, the store's file is cut off under the store.
 */

const fixture = (name: string) => fileURLToPath(new URL(`../fixtures/${name}`, import.meta.url));

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
