import { closeSync, fsyncSync, openSync, readFileSync, renameSync, rmSync, writeSync } from "node:fs";
import { checkSessionId, messageOf, type StoreWrite, TroupeError, type WriteReceipt } from "../kernel/index.js";
import type { StoreBackend } from "./contract.js";
import { type PrunePolicy, type PruneReport, Pruning, type Suspects } from "./prune.js";
import { exportSession } from "./transfer/export-file.js";
import { exportSessionJson } from "./transfer/export-json.js";
import { importWrites, readExport } from "./transfer/import.js";

export interface ExportRequest {
  readonly sessionId: string;
  readonly file: string;
  /** `json` is for reading; both can be imported. Default `binary`. */
  readonly format?: "binary" | "json";
}

export interface ImportRequest {
  readonly file: string;
  /** The id it gets here; its own by default. */
  readonly sessionId?: string;
}

export interface ImportedSession {
  readonly sessionId: string;
  readonly revision: number;
}

export interface MaintenanceOptions {
  readonly backend: StoreBackend;
  /** Puts a write into the queue of commits. */
  readonly write: (write: StoreWrite) => Promise<WriteReceipt>;
  /** Lets commits that wait be written; throws once the store closes. */
  readonly pause: () => Promise<void>;
}

/**
 * What is done to a store beside committing to it. One thing at a time, so that none removes what another is bringing;
 * in short steps, so that commits do not wait for it.
 */
export class Maintenance {
  readonly #options: MaintenanceOptions;
  readonly #suspects: Suspects = new Map();
  #pruning: Pruning | undefined;
  #last: Promise<unknown> = Promise.resolve();

  constructor(options: MaintenanceOptions) {
    this.#options = options;
  }

  /** Told of every write that was accepted, at once. */
  wrote(write: StoreWrite): void {
    this.#pruning?.wrote(write);
  }

  /** Resolves when nothing is going on any more. */
  async ended(): Promise<void> {
    await this.#last.catch(ignore);
  }

  prune(policy: PrunePolicy = {}): Promise<PruneReport> {
    return this.#next(async () => {
      const { backend, pause } = this.#options;
      this.#pruning = new Pruning(backend, { policy, suspects: this.#suspects, now: Date.now() });
      try {
        return await this.#pruning.run(pause);
      } finally {
        this.#pruning = undefined;
      }
    });
  }

  /** Writes a session to a file, which is there whole or not at all. */
  exportSession({ sessionId, file, format = "binary" }: ExportRequest): Promise<void> {
    return this.#next(async () => {
      const { backend, pause } = this.#options;
      if (format === "json") await writeWhole(file, [Buffer.from(exportSessionJson(backend, sessionId))], pause);
      else await writeWhole(file, exportSession(backend, sessionId), pause);
    });
  }

  importSession({ file, sessionId }: ImportRequest): Promise<ImportedSession> {
    return this.#next(async () => {
      const { write, pause } = this.#options;
      const exported = readExport(readWhole(file));
      const id = checkSessionId(sessionId ?? exported.head.sessionId);
      const writes = importWrites(exported, { sessionId: id });
      for (const part of writes) {
        await write(part);
        await pause();
      }
      return { sessionId: id, revision: writes.at(-1)?.head?.revision ?? 0 };
    });
  }

  #next<T>(run: () => Promise<T>): Promise<T> {
    const running = this.#last.catch(ignore).then(run);
    this.#last = running;
    return running;
  }
}

async function writeWhole(file: string, pieces: Iterable<Uint8Array>, pause: () => Promise<void>): Promise<void> {
  const draft = `${file}.${process.pid}.part`;
  try {
    const descriptor = onDisk(file, () => openSync(draft, "wx"));
    try {
      for (const piece of pieces) {
        onDisk(file, () => writeAll(descriptor, piece));
        await pause();
      }
      onDisk(file, () => fsyncSync(descriptor));
    } finally {
      closeSync(descriptor);
    }
    onDisk(file, () => renameSync(draft, file));
  } finally {
    rmSync(draft, { force: true });
  }
}

function writeAll(descriptor: number, bytes: Uint8Array): void {
  for (let at = 0; at < bytes.length; ) at += writeSync(descriptor, bytes, at);
}

function readWhole(file: string): Uint8Array {
  return onDisk(file, () => readFileSync(file));
}

function onDisk<T>(file: string, use: () => T): T {
  try {
    return use();
  } catch (cause) {
    throw new TroupeError("export_file_failed", `${file} cannot be used: ${messageOf(cause)}.`, {
      details: { file },
      cause,
    });
  }
}

function ignore(): void {}
