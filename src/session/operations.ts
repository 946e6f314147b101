import { asTroupeError, TroupeError } from "../kernel/index.js";
import { type OperationKind, type OperationOutcome, operationSession } from "../plugin/index.js";
import type { OperationReceipt } from "./protocol.js";
import type { Session } from "./session.js";

export interface OperationRequest {
  readonly kind: OperationKind;
  readonly name: string;
  readonly args: unknown;
  /** A session named by the caller; by default the operation is about the one it is called on. */
  readonly about: string | undefined;
  readonly signal: AbortSignal;
}

/**
 * Runs an operation on a session. The plugin's state is stored before a command or task is answered; a query changes
 * nothing, so it needs no place in the mailbox.
 */
export async function runOperation(session: Session, request: OperationRequest): Promise<OperationReceipt> {
  const { kind, name, args, about, signal } = request;
  const { link, slot, spec } = session.hooks.operation(kind, name);
  const sessionId = operationSession(spec, about, session.id);
  let outcome: OperationOutcome;
  try {
    outcome = (await link.operation(slot, { name, args, sessionId, signal })) as OperationOutcome;
  } catch (error) {
    throw operationError(error, name);
  }
  if (kind !== "query") await session.save();
  const pluginId = link.manifest.id;
  return {
    output: outcome.output,
    events: (outcome.events ?? []).map((value) => ({ pluginId, value })),
    turns: (outcome.directives ?? []).map(({ input }) => input),
  };
}

/** What the plugin threw is the cause; what the runtime says of itself (a lost worker, an abort) stays what it is. */
function operationError(thrown: unknown, name: string): TroupeError {
  if (thrown instanceof TroupeError) return thrown;
  const cause = asTroupeError(thrown, "operation_failed");
  return new TroupeError("operation_failed", `${name} failed: ${cause.message}`, { cause: thrown });
}
