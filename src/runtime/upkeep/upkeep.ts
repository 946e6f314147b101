import { checkSessionId, type FieldsOf, invalidOptions, sessionExists } from "../../kernel/index.js";
import {
  type ExportOptions,
  type ImportedSession,
  type ImportOptions,
  type PruneOptions,
  type PruneReport,
  readWhole,
  type WorkOptions,
} from "../../store/index.js";
import { checkCallOptions } from "../options/index.js";
import { type Runtime, underWay } from "../places/index.js";
import { NO_DEADLINE_MS } from "../threads/index.js";

export interface DeleteOptions {
  /** What becomes of a turn that runs or waits: the deletion is refused (`session_busy`, the default), or it is cancelled. */
  readonly running?: "refuse" | "cancel";
}

/** `onGone`: nothing is left of the session. */
export async function deleteSession(
  runtime: Runtime,
  sessionId: string,
  options: DeleteOptions,
  { onGone }: { readonly onGone: () => void },
): Promise<boolean> {
  checkCallOptions(options, { running: true }, "deleteSession");
  const { running = "refuse" } = options;
  const { directory, store } = runtime;
  checkSessionId(sessionId);
  if (running !== "refuse" && running !== "cancel")
    throw invalidOptions(`running must be "refuse" or "cancel", not ${String(running)}`);
  if (running === "refuse" && directory.isBusy(sessionId)) throw underWay(sessionId);
  // Also a session that is not open: nobody opens it while it is being deleted.
  directory.of(sessionId);
  let deleted = false;
  const leave = async (worker: number) => {
    await runtime.worker(worker).ask("discard", { sessionId }, { deadlineMs: NO_DEADLINE_MS });
    await runtime.left(sessionId);
    deleted = await store.ask("deleteSession", { sessionId }, { deadlineMs: NO_DEADLINE_MS });
    onGone();
  };
  const hurry = async (worker: number) => {
    if (running !== "cancel") return;
    await runtime.worker(worker).ask("cancelWork", { sessionId, reason: "The session is being deleted." });
  };
  await directory.moveOut(sessionId, leave, hurry);
  return deleted;
}

const WORK: FieldsOf<WorkOptions> = { signal: true, onProgress: true };
const EXPORT: FieldsOf<ExportOptions & { readonly file?: string }> = { ...WORK, file: true, format: true };
const IMPORT: FieldsOf<ImportOptions> = { ...WORK, id: true, tenant: true };

export async function exportSession(
  { store }: Runtime,
  sessionId: string,
  options: ExportOptions & { readonly file?: string },
): Promise<Uint8Array | undefined> {
  checkCallOptions(options, EXPORT, "exportSession");
  const { file, format = "msgpack", ...work } = options;
  checkSessionId(sessionId);
  if (format !== "msgpack" && format !== "json")
    throw invalidOptions(`format must be "msgpack" or "json", not ${String(format)}`);
  return (await store.follow("exportSession", { sessionId, file, format }, work)).bytes;
}

export async function importSession(
  { directory, store, options: { worker } }: Runtime,
  source: string | URL | Uint8Array,
  options: ImportOptions,
): Promise<ImportedSession> {
  checkCallOptions(options, IMPORT, "importSession");
  const { id, tenant, ...work } = options;
  if (id !== undefined && directory.has(checkSessionId(id))) throw sessionExists(id);
  const bytes = await readWhole(source);
  return store.follow("importSession", { bytes, sessionId: id, tenant, budget: worker.budget }, work);
}

const PRUNE: FieldsOf<PruneOptions> = { ...WORK, graceMs: true, journalsOlderThanMs: true, dryRun: true };

export async function prune({ directory, store }: Runtime, options: PruneOptions): Promise<PruneReport> {
  // A misspelt `dryRun` would remove.
  checkCallOptions(options, PRUNE, "prune");
  const { signal, onProgress, ...policy } = options;
  return store.follow("prune", { ...policy, running: directory.ids() }, { signal, onProgress });
}

export async function backup({ store }: Runtime, folder: string, options: Pick<WorkOptions, "signal">): Promise<void> {
  checkCallOptions(options, { signal: true }, "backup");
  if (typeof folder !== "string" || folder === "") throw invalidOptions("backup takes the path of an empty folder");
  return store.follow("backup", { folder }, { signal: options.signal });
}
