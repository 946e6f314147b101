import { messageOf, TroupeError } from "../../kernel/index.js";
import { type EventSink, eventError } from "../../trace/index.js";
import { workerLost } from "../../wire/index.js";
import { type ThreadExit, wayOf } from "./threads.js";

/** The error of calls whose worker ended by itself. */
export function lossOf(name: string, exit: ThreadExit): TroupeError {
  const reason = wayOf(exit);
  const how = {
    exit: `ended by its own exit, with code ${exit.code}`,
    error: `ended with an error that nobody caught: ${messageOf(exit.error)}`,
    heap: "used more heap than its thread may have (sessionHeapMb)",
  }[reason];
  return workerLost(name, `${how}; the call was not answered`, { details: { reason }, cause: exit.error });
}

/** The error of calls whose worker ended with an error that nobody caught: it says whose code that was. */
export function crashed(name: string, cause: Error): TroupeError {
  const details = { ...(cause instanceof TroupeError && cause.details), reason: "error" };
  return workerLost(name, `is gone; the call was not answered. ${cause.message.replace(/\.$/, "")}`, {
    details,
    cause,
  });
}

/** Whose code a rejection came from. */
interface ModuleOwner {
  readonly kind: "plugin" | "model";
  readonly name: string;
  readonly module: string;
}

/** Tells whoever listens that a session worker's thread is gone, by itself or because somebody asked for it. */
export function tellWorkerLost(
  events: EventSink | undefined,
  { thread, error, asked }: { readonly thread: string; readonly error: TroupeError; readonly asked: boolean },
): void {
  if (events === undefined) return;
  const reason = asked ? "asked" : String(error.details.reason ?? "exit");
  events.emit({ type: "session_worker_lost", thread, reason, error: eventError(error) });
}

/** Tells of a rejection that nobody handled, and whose it is. */
export function tellFloating(events: EventSink | undefined, error: Error): void {
  if (events === undefined) return;
  // As `UncaughtErrors` and the threads of plugins report it.
  const owner = error instanceof TroupeError ? (error.details.owner as ModuleOwner | null) : null;
  events.emit({
    type: "floating_rejection",
    ...(owner?.kind === "plugin" && { plugin: owner.name }),
    owner: owner?.module ?? null,
    error: eventError(error),
  });
}
