import { accessSync, closeSync, constants, existsSync, openSync, readSync } from "node:fs";
import { join } from "node:path";
import { messageOf, TroupeError } from "../kernel/index.js";

/**
 * Looks at LMDB's files before LMDB does: when it cannot open them, lmdb 3.5 frees its environment twice and takes the
 * whole process with it. Throws `store_open_failed`, or `store_damaged` for a file that is no database.
 */
export function checkDatabaseFile(path: string, { readOnly }: { readonly readOnly: boolean }): void {
  const file = join(path, "data.mdb");
  const lock = join(path, "lock.mdb");
  if (!existsSync(file)) {
    if (readOnly)
      throw new TroupeError("store_open_failed", `There is no store at ${path} yet.`, { details: { path } });
    return;
  }
  let first: Uint32Array;
  let second: Uint32Array;
  try {
    if (existsSync(lock)) accessSync(lock, constants.R_OK | constants.W_OK);
    accessSync(file, readOnly ? constants.R_OK : constants.R_OK | constants.W_OK);
    [first, second] = readHeaders(file);
  } catch (cause) {
    throw new TroupeError("store_open_failed", `The store at ${path} cannot be opened: ${messageOf(cause)}.`, {
      cause,
    });
  }
  // A file without a byte is one whose creation was interrupted; LMDB starts it anew.
  if (first.length === 0 && !readOnly) return;
  if (!isHeader(first) || !isHeader(second)) {
    throw new TroupeError(
      "store_damaged",
      `${file} is not a database of this release, or is damaged. Restore it from a backup, or choose another path.`,
      { details: { path } },
    );
  }
}

// An LMDB file begins with two copies of its header, one per page, in the byte order of the machine. As 32-bit words:
const MAGIC_WORD = 6;
const VERSION_WORD = 7;
const PAGE_SIZE_WORD = 12;
const HEADER_WORDS = 44;
const MAGIC = 0xbeefc0de;
const FILE_VERSION = 2;

function readHeaders(file: string): [Uint32Array, Uint32Array] {
  const descriptor = openSync(file, "r");
  try {
    const first = readWords(descriptor, 0);
    return [first, readWords(descriptor, first[PAGE_SIZE_WORD] ?? 0)];
  } finally {
    closeSync(descriptor);
  }
}

function readWords(descriptor: number, position: number): Uint32Array {
  const words = new Uint32Array(HEADER_WORDS);
  const count = readSync(descriptor, words, 0, words.byteLength, position);
  return words.subarray(0, Math.floor(count / 4));
}

function isHeader(words: Uint32Array): boolean {
  if (words.length < HEADER_WORDS || words[MAGIC_WORD] !== MAGIC) return false;
  return ((words[VERSION_WORD] ?? 0) & 0xffff) === FILE_VERSION;
}
