import { checkSessionId, invalidOptions, sessionExists } from "../../kernel/index.js";
import { type ExportOptions, type ImportedSession, type ImportOptions, readWhole } from "../../store/index.js";
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
  { running = "refuse", onGone }: DeleteOptions & { readonly onGone: () => void },
): Promise<boolean> {
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

export async function exportSession(
  { store }: Runtime,
  sessionId: string,
  { file, format = "msgpack", ...work }: ExportOptions & { readonly file?: string },
): Promise<Uint8Array | undefined> {
  checkSessionId(sessionId);
  if (format !== "msgpack" && format !== "json")
    throw invalidOptions(`format must be "msgpack" or "json", not ${String(format)}`);
  return (await store.follow("exportSession", { sessionId, file, format }, work)).bytes;
}

export async function importSession(
  { directory, store, options: { worker } }: Runtime,
  source: string | URL | Uint8Array,
  { id, tenant, ...work }: ImportOptions,
): Promise<ImportedSession> {
  if (id !== undefined && directory.has(checkSessionId(id))) throw sessionExists(id);
  const bytes = await readWhole(source);
  return store.follow("importSession", { bytes, sessionId: id, tenant, budget: worker.budget }, work);
}
