import { constants, type Stats } from "node:fs";
import { type FileHandle, open, stat } from "node:fs/promises";
import { resolve } from "node:path";
import { type Clock, sleep } from "../async/index.js";
import { asTroupeError, type FilePlace, type FileSpec, messageOf, TroupeError } from "../kernel/index.js";
import { realPath } from "../wire/index.js";
import { Lines } from "./lines.js";
import type { Source, Watch } from "./watch.js";

/** How often a file is looked at. */
const LOOK_MS = 150;
const CHUNK_BYTES = 64 * 1024;
/** Read between two looks; a file that grows faster is read later. */
const MOST_AT_ONCE = 4 * 1024 * 1024;

interface FileParts {
  readonly clock: Clock;
  readonly watch: Watch;
  /** How far it was read before it was started again. */
  readonly place: FilePlace | null;
  /** Throws unless the path, with its links followed, may be read. */
  readonly check: (path: string) => void;
}

/** The file that is read, and how far. */
interface Opened {
  readonly handle: FileHandle;
  readonly stats: Stats;
  lines: Lines;
  at: number;
  /** Behind the last line's end. */
  behindLine: number;
}

/**
 * The lines that are added to a file, as `tail -F` follows it: one that is replaced is read to its end and the new one from
 * its beginning, one that was cut is read from its beginning, one that is not there is waited for.
 */
export class FileSource implements Source {
  readonly #path: string;
  readonly #parts: FileParts;
  readonly #stop = new AbortController();
  #opened: Opened | undefined;
  #done: Promise<void> = Promise.resolve();

  private constructor({ path }: FileSpec, parts: FileParts) {
    this.#path = resolve(path);
    this.#parts = parts;
  }

  /** Resolves when its place is known. Rejects when it may not, or cannot, be read. */
  static async start(spec: FileSpec, parts: FileParts): Promise<FileSource> {
    const source = new FileSource(spec, parts);
    const first = await source.#open();
    if (first !== undefined) {
      const { place } = parts;
      const { stats } = first;
      const isSame = place !== null && place.file === stats.ino && place.device === stats.dev && place.at <= stats.size;
      first.at = isSame ? place.at : place === null && spec.from === "end" ? stats.size : 0;
      first.behindLine = first.at;
      source.#opened = first;
    }
    source.#done = source.#follow();
    return source;
  }

  async stop(): Promise<void> {
    this.#stop.abort();
    await this.#done;
  }

  /** Where it is; null while it is not there. */
  get place(): FilePlace | null {
    const opened = this.#opened;
    if (opened === undefined) return null;
    const { stats, behindLine: at } = opened;
    return { device: stats.dev, file: stats.ino, at };
  }

  async #follow(): Promise<void> {
    const { clock, watch } = this.#parts;
    const { signal } = this.#stop;
    try {
      while (!signal.aborted) {
        await this.#look();
        await sleep(clock, LOOK_MS, { signal }).catch(() => undefined);
      }
    } catch (thrown) {
      const { code, message } = asTroupeError(thrown, "monitor_file_unreadable");
      watch.end({ reason: "failed", error: { code, message } });
    } finally {
      await this.#close();
    }
  }

  async #look(): Promise<void> {
    const there = await stat(this.#path).catch(missing);
    const before = this.#opened;
    if (before !== undefined) {
      const isSame = there !== undefined && there.ino === before.stats.ino && there.dev === before.stats.dev;
      await this.#read(before);
      if (isSame || there === undefined) return;
      this.#say(before.lines.end());
      await this.#close();
    }
    if (there === undefined) return;
    this.#opened = await this.#open();
    if (this.#opened !== undefined) await this.#read(this.#opened);
  }

  async #read(opened: Opened): Promise<void> {
    const { handle } = opened;
    const { size } = await handle.stat();
    if (size < opened.at) {
      opened.at = 0;
      opened.behindLine = 0;
      opened.lines = new Lines();
    }
    const until = opened.at + MOST_AT_ONCE;
    const buffer = Buffer.allocUnsafe(CHUNK_BYTES);
    while (opened.at < until && !this.#stop.signal.aborted) {
      const { bytesRead } = await handle.read(buffer, 0, CHUNK_BYTES, opened.at);
      if (bytesRead === 0) return;
      const chunk = buffer.subarray(0, bytesRead);
      const end = chunk.lastIndexOf("\n");
      if (end >= 0) opened.behindLine = opened.at + end + 1;
      opened.at += bytesRead;
      this.#say(opened.lines.add(chunk));
    }
  }

  #say(lines: readonly string[]): void {
    if (lines.length > 0) this.#parts.watch.add(lines, this.place);
  }

  /** Undefined: it is not there. Without waiting for whoever writes to it, where it is no file at all. */
  async #open(): Promise<Opened | undefined> {
    const real = this.#real();
    this.#parts.check(real);
    const handle = await open(real, constants.O_RDONLY | constants.O_NONBLOCK).catch((error: unknown) => {
      if (isMissing(error)) return undefined;
      throw unreadable(this.#path, messageOf(error));
    });
    if (handle === undefined) return undefined;
    const stats = await handle.stat();
    if (stats.isFile()) return { handle, stats, lines: new Lines(), at: 0, behindLine: 0 };
    await handle.close();
    throw unreadable(this.#path, "it is no file");
  }

  #real(): string {
    try {
      return realPath(this.#path);
    } catch (error) {
      throw unreadable(this.#path, messageOf(error));
    }
  }

  async #close(): Promise<void> {
    const opened = this.#opened;
    this.#opened = undefined;
    await opened?.handle.close().catch(() => undefined);
  }
}

function missing(error: unknown): undefined {
  if (!isMissing(error)) throw error;
}

function isMissing(error: unknown): boolean {
  return (error as NodeJS.ErrnoException).code === "ENOENT";
}

function unreadable(path: string, why: string): TroupeError {
  return new TroupeError("monitor_file_unreadable", `${path} cannot be watched: ${why}.`, { details: { path } });
}
