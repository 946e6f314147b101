import { lstatSync, mkdirSync, readFileSync, renameSync, rm, writeFileSync } from "node:fs";
import module, { createRequire } from "node:module";
import { tmpdir } from "node:os";
import { basename, join } from "node:path";
import { Script } from "node:vm";
import { threadId } from "node:worker_threads";
import { crc32 } from "node:zlib";

/** A CommonJS file that was loaded. */
export interface Loaded<Exports> {
  readonly exports: Exports;
  /** Keeps what V8 has compiled of the file by now for the next start. */
  readonly keep: () => void;
}

/** Loads a CommonJS file as `require` does. */
export function load<Exports>(file: string): Loaded<Exports> {
  return { exports: createRequire(file)(file), keep() {} };
}

/**
 * Loads a CommonJS file in ASCII with the code that V8 made of it at an earlier start, as Node itself does since 22.1.
 * Compiling is half of a session worker's start. The code is kept in a folder of the system's temporary one that nobody else
 * can write: what lies there is run.
 *
 * V8 forgets of kept code how it imports. So the file finds `module.importHere`, and uses it in the place of `import`.
 */
export function loadKept<Exports>(file: string, folder = join(tmpdir(), FOLDER)): Loaded<Exports> {
  const source = readFileSync(file);
  // Kept code says where it is from, in stacks.
  const sum = crc32(source, crc32(file));
  const version = `${process.versions.v8}-${process.arch}`;
  const place = join(folder, `${basename(file)}-${sum.toString(16)}-${version}`);
  const cachedData = isOurs(folder) ? readKept(place) : undefined;
  const script = new Script(module.wrap(source.toString("latin1")), {
    filename: file,
    ...(cachedData !== undefined && { cachedData }),
  });
  const loaded = { exports: {}, importHere: (name: string) => import(name) };
  script.runInThisContext()(loaded.exports, createRequire(file), loaded, file, join(file, ".."));
  const isKept = script.cachedDataRejected === false;
  return {
    exports: loaded.exports as Exports,
    keep() {
      if (!isKept && isOurs(folder)) writeKept(place, script.createCachedData());
    },
  };
}

const FOLDER = `troupe-compile-cache-${process.getuid?.() ?? "user"}`;
const SUM_BYTES = 4;

/** Does nobody but this user write there? It is made when it is missing. */
function isOurs(folder: string): boolean {
  try {
    mkdirSync(folder, { recursive: true, mode: 0o700 });
    const found = lstatSync(folder);
    if (process.getuid === undefined) return found.isDirectory();
    return found.isDirectory() && found.uid === process.getuid() && (found.mode & 0o022) === 0;
  } catch {
    return false;
  }
}

/** Undefined when there is none, or when a crash left half of one. */
function readKept(place: string): Buffer | undefined {
  try {
    const bytes = readFileSync(place);
    const code = bytes.subarray(SUM_BYTES);
    return bytes.readUInt32LE() === crc32(code) ? code : undefined;
  } catch {
    return undefined;
  }
}

/** Whole or not at all: other threads and processes read it, or write the same. */
function writeKept(place: string, code: Buffer): void {
  const draft = `${place}-${process.pid}-${threadId}`;
  const sum = Buffer.alloc(SUM_BYTES);
  sum.writeUInt32LE(crc32(code));
  try {
    writeFileSync(draft, Buffer.concat([sum, code]), { mode: 0o600 });
    renameSync(draft, place);
  } catch {
    // A full disk, perhaps: the next start compiles again.
    rm(draft, { force: true }, () => {});
  }
}
