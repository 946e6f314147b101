import { execFileSync } from "node:child_process";
import { closeSync, existsSync, fsyncSync, openSync, writeSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";

/*
 * Whether a file's bytes are on the disk, and not only in the page cache. What the kernel holds of a file and has not
 * written yet it gives up when the file is cut off, and counts as `cancelled_write_bytes` of the process that cut it off.
 * So the file is cut off: 0 means that nothing of it was in memory only.
 *
 * This shows that the kernel had handed every page of the file to the device and heard that it was done. It does not show
 * that the device kept it (a disk may lie about its own cache), nor that a directory entry was synced.
 */

/** How many bytes of the file were in memory only. The file is empty afterwards. */
export function unsyncedBytes(file: string): number {
  const program = fileURLToPath(new URL("./fixtures/unsynced-bytes.mjs", import.meta.url));
  return Number(execFileSync(process.execPath, [program, file], { encoding: "utf8" }));
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

export const canBeSeen = (folder: string): boolean =>
  existsSync("/proc/self/io") && unsyncedOfPlainFile(folder, false) > 0 && unsyncedOfPlainFile(folder, true) === 0;
