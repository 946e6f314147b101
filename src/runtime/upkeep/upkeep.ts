import { checkSessionId, sessionExists, TroupeError } from "../../kernel/index.js";
import {
  type ExportOptions,
  type ImportedSession,
  type ImportOptions,
  type ListRequest,
  type PruneOptions,
  type PruneReport,
  readWhole,
  type SessionPage,
  type WorkOptions,
} from "../../store/index.js";
import type { Observers } from "../observe/index.js";
import type { Runtime } from "../places/index.js";
import { sessionBusy } from "../places/index.js";
import type { Relay } from "../sessions/index.js";
import { NO_DEADLINE_MS } from "../threads/index.js";

export interface DeleteOptions {
  /** What becomes of a turn that runs or waits: the deletion is refused (`session_busy`, the default), or it is cancelled. */
  readonly running?: "refuse" | "cancel";
}

/** What a host does to its store beside running turns. The store's thread does it, between commits. */
export class Upkeep {
  readonly #runtime: Runtime;
  readonly #parts: { readonly observers: Observers; readonly relay: Relay };

  constructor(runtime: Runtime, parts: { readonly observers: Observers; readonly relay: Relay }) {
    this.#runtime = runtime;
    this.#parts = parts;
  }

  async deleteSession(sessionId: string, { running = "refuse" }: DeleteOptions): Promise<boolean> {
    this.#runtime.checkOpen();
    const { directory, crew } = this.#runtime;
    checkSessionId(sessionId);
    if (running !== "refuse" && running !== "cancel")
      throw new TroupeError("invalid_options", 'running is "refuse" or "cancel".');
    if (running === "refuse" && directory.isBusy(sessionId)) throw sessionBusy(sessionId);
    // Also a session that is not open: nobody opens it while it is being deleted.
    directory.of(sessionId);
    let deleted = false;
    const leave = async (worker: number) => {
      await this.#runtime.worker(worker).ask("discard", { sessionId }, { deadlineMs: NO_DEADLINE_MS });
      deleted = await crew.store.deleteSession({ sessionId });
      this.#parts.observers.ended(sessionId);
      this.#parts.relay.forget(sessionId);
    };
    const hurry = async (worker: number) => {
      if (running !== "cancel") return;
      await this.#runtime.worker(worker).ask("cancelWork", { sessionId, reason: "The session is being deleted." });
    };
    await directory.moveOut(sessionId, leave, hurry);
    return deleted;
  }

  async prune({ signal, onProgress, ...policy }: PruneOptions): Promise<PruneReport> {
    this.#runtime.checkOpen();
    const running = this.#runtime.directory.ids();
    return this.#runtime.crew.store.prune({ ...policy, running }, { signal, onProgress });
  }

  async exportSession(
    sessionId: string,
    { file, format = "msgpack", ...work }: ExportOptions & { readonly file?: string },
  ): Promise<Uint8Array | undefined> {
    this.#runtime.checkOpen();
    checkSessionId(sessionId);
    if (format !== "msgpack" && format !== "json")
      throw new TroupeError("invalid_options", 'format is "msgpack" or "json".');
    return this.#runtime.crew.store.exportSession({ sessionId, file, format }, work);
  }

  async importSession(source: string | URL | Uint8Array, { id, ...work }: ImportOptions): Promise<ImportedSession> {
    this.#runtime.checkOpen();
    if (id !== undefined && this.#runtime.directory.has(checkSessionId(id))) throw sessionExists(id);
    const bytes = await readWhole(source);
    return this.#runtime.crew.store.importSession({ bytes, sessionId: id }, work);
  }

  async listSessions(page: ListRequest): Promise<SessionPage> {
    this.#runtime.checkOpen();
    return this.#runtime.crew.store.list(page);
  }

  async backup(folder: string, work: WorkOptions): Promise<void> {
    this.#runtime.checkOpen();
    return this.#runtime.crew.store.backup(folder, work);
  }
}
