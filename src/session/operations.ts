import { type AppendNode, asTroupeError, TroupeError } from "../kernel/index.js";
import { type OperationKind, type OperationOutcome, operationSession } from "../plugin/index.js";
import type { OperationReceipt } from "./protocol.js";
import type { Session } from "./session.js";

export interface OperationRequest {
  readonly kind: OperationKind;
  readonly name: string;
  readonly args: unknown;
  /** A session named by the caller; by default the operation is about the one it is called on. */
  readonly about: string | undefined;
  /** Names the call: asked again under the same key, a command is answered and not repeated. */
  readonly key: string | undefined;
  readonly signal: AbortSignal;
}

/** Does an operation need the session to itself? */
export function needsItsTurn(session: Session, { kind, name }: Pick<OperationRequest, "kind" | "name">): boolean {
  if (kind !== "action") return kind !== "query";
  return session.hooks.operation(kind, name).spec.acts === "command";
}

/**
 * Runs an operation on a session. What a command or task tells and the plugins' state are stored in one write before it
 * is answered; a query changes nothing, so it needs no place in the mailbox. An action has no effects beyond state.
 */
export async function runOperation(session: Session, request: OperationRequest): Promise<OperationReceipt> {
  const { kind, name, args, about, key, signal } = request;
  const { link, slot, spec } = session.hooks.operation(kind, name);
  const sessionId = operationSession(spec, about, session.id);
  const done = key === undefined ? undefined : await session.receipt(key, name);
  if (done !== undefined) return done;
  let outcome: OperationOutcome;
  try {
    outcome = (await link.operation(slot, { name, args, sessionId, signal })) as OperationOutcome;
  } catch (error) {
    throw operationError(error, name);
  }
  const pluginId = link.manifest.id;
  const events = outcome.events ?? [];
  const receipt: OperationReceipt = {
    output: outcome.output,
    events: events.map((value) => ({ pluginId, value })),
    turns: (outcome.directives ?? []).map(({ input }) => input),
  };
  if (!needsItsTurn(session, request)) return receipt;
  if (key !== undefined) await session.keepReceipt(key, name, receipt);
  if (events.length === 0) {
    await session.save();
    return receipt;
  }
  const [captured] = await Promise.allSettled([session.hooks.capture()]);
  const nodes = events.map(
    (event): AppendNode => ({ kind: "plugin", pluginType: `event.${event.name}`, body: event.payload ?? null }),
  );
  await session.append({ nodes }, { kind: "plugin", pluginId });
  if (captured.status === "rejected") throw captured.reason;
  return receipt;
}

/** What the plugin threw is the cause; what the runtime says of itself (a lost worker, an abort) stays what it is. */
function operationError(thrown: unknown, name: string): TroupeError {
  if (thrown instanceof TroupeError) return thrown;
  const cause = asTroupeError(thrown, "operation_failed");
  return new TroupeError("operation_failed", `${name} failed: ${cause.message}`, { cause: thrown });
}
