import {
  closeSync,
  existsSync,
  fsyncSync,
  mkdirSync,
  openSync,
  readdirSync,
  renameSync,
  rmSync,
  writeSync,
} from "node:fs";
import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { messageOf, TroupeError, type TroupeErrorCode } from "../../kernel/index.js";

/** Writes a file that is there whole or not at all. `pause` is told how many bytes there are by now. */
export async function writeWhole(
  file: string,
  pieces: AsyncIterable<Uint8Array>,
  pause: (written: number) => Promise<void>,
): Promise<void> {
  const draft = `${file}.${process.pid}.part`;
  const failed = failing("export_file_failed", file);
  let written = 0;
  try {
    const descriptor = failed(() => openSync(draft, "wx"));
    try {
      for await (const piece of pieces) {
        failed(() => writeAll(descriptor, piece));
        written += piece.length;
        await pause(written);
      }
      failed(() => fsyncSync(descriptor));
    } finally {
      closeSync(descriptor);
    }
    failed(() => renameSync(draft, file));
  } finally {
    rmSync(draft, { force: true });
  }
}

function writeAll(descriptor: number, bytes: Uint8Array): void {
  for (let at = 0; at < bytes.length; ) at += writeSync(descriptor, bytes, at);
}

/** The bytes of an exported session, in a buffer of their own, so that they can go to another thread. */
export async function readWhole(source: string | URL | Uint8Array): Promise<Uint8Array<ArrayBuffer>> {
  if (source instanceof Uint8Array) return Uint8Array.from(source);
  try {
    return Uint8Array.from(await readFile(source));
  } catch (cause) {
    throw fileFailed("export_file_failed", String(source), cause);
  }
}

/**
 * Makes a folder with one file that is there whole or not at all. Refused with `backup_exists` when something is in the
 * folder: a backup never replaces another.
 */
export async function fillFolder(folder: string, name: string, fill: (draft: string) => Promise<void>): Promise<void> {
  const failed = failing("backup_failed", folder);
  const draft = join(folder, ".part");
  failed(() => mkdirSync(folder, { recursive: true }));
  if (failed(() => readdirSync(folder)).some((entry) => entry !== ".part")) {
    throw new TroupeError("backup_exists", `${folder} is not empty. Give each backup a folder of its own.`, {
      details: { folder },
    });
  }
  try {
    failed(() => {
      // Of a backup that was cut off.
      rmSync(draft, { recursive: true, force: true });
      mkdirSync(draft);
    });
    await fill(draft).catch((cause) => {
      throw fileFailed("backup_failed", folder, cause);
    });
    failed(() => {
      sync(join(draft, name));
      renameSync(join(draft, name), join(folder, name));
    });
  } finally {
    if (existsSync(draft)) rmSync(draft, { recursive: true, force: true });
  }
}

function sync(file: string): void {
  const descriptor = openSync(file, "r+");
  try {
    fsyncSync(descriptor);
  } finally {
    closeSync(descriptor);
  }
}

function failing(code: TroupeErrorCode, file: string): <T>(use: () => T) => T {
  return (use) => {
    try {
      return use();
    } catch (cause) {
      throw fileFailed(code, file, cause);
    }
  };
}

function fileFailed(code: TroupeErrorCode, file: string, cause: unknown): TroupeError {
  return new TroupeError(code, `${file} cannot be used: ${messageOf(cause)}.`, { details: { file }, cause });
}
