import {
  type AppendNode,
  aborted,
  asTroupeError,
  type Origin,
  type PendingInput,
  TroupeError,
} from "../../kernel/index.js";
import { type NamedOperation, needsItsTurn, operationSession } from "../../plugin/index.js";
import type { OperationReceipt } from "../calls/index.js";
import { readOutcome } from "../plugins/index.js";
import type { Session } from "../state/index.js";

export type OperationRequest = NamedOperation & {
  readonly args: unknown;
  /** A session named by the caller; by default the operation is about the one it is called on. */
  readonly about: string | undefined;
  /** Names the call: asked again under the same key, a command is answered and not repeated. */
  readonly key: string | undefined;
  readonly signal: AbortSignal;
  /** Told when a task has begun: an abort then asks it to stop, and the caller waits for its answer. */
  readonly onTask?: () => void;
};

export interface OperationDone {
  readonly receipt: OperationReceipt;
  /** The turns it asked for, stored with the receipt; none when an earlier call under the same key came to this. */
  readonly queued: readonly PendingInput[];
}

/**
 * Runs an operation on a session. What a command or task tells and the plugins' state are stored in one write before it
 * is answered; a query changes nothing, so it needs no place in the mailbox. An action has no effects beyond state.
 */
export async function runOperation(session: Session, request: OperationRequest): Promise<OperationDone> {
  const { name, args, about, key, signal } = request;
  const { link, slot, spec } = session.hooks.operation(request);
  const sessionId = operationSession(spec, about, session.id);
  const done = key === undefined ? undefined : await session.receipts.operation(key, name);
  if (done !== undefined) return { receipt: done, queued: [] };
  // Given up while it waited for its place.
  if (signal.aborted) throw aborted(signal);
  if (spec.kind === "task") request.onTask?.();
  let answer: unknown;
  try {
    answer = await link.operation(slot, { spec, args, sessionId, signal });
  } catch (error) {
    throw operationError(error, name);
  }
  const pluginId = link.manifest.id;
  const { output, events, directives } = readOutcome(answer, pluginId);
  const receipt: OperationReceipt = {
    output,
    events: events.map((value) => ({ pluginId, value })),
    turns: directives.map(({ input }) => input),
  };
  if (!needsItsTurn(spec)) return { receipt, queued: [] };
  const { clock } = session.services;
  const queued = receipt.turns.map(
    (text): PendingInput => ({ id: clock.uuid(), text, waitsFor: { kind: "next_turn" }, ownTurn: true }),
  );
  const nodes = events.map(
    (event): AppendNode => ({ kind: "plugin", pluginType: `event.${event.name}`, body: event.payload ?? null }),
  );
  await storeOutcome(session, nodes, { kind: "plugin", pluginId }, () => {
    if (queued.length > 0) session.inputs.addTurns(queued);
    if (key !== undefined) session.receipts.keepOperation(key, name, receipt);
  });
  return { receipt, queued };
}

/**
 * Stores what an operation told and what it changed, in one write, also for a session that was never stored. `keep`
 * changes what else is to be in that write.
 */
async function storeOutcome(
  { hooks, graph, stored }: Session,
  nodes: readonly AppendNode[],
  origin: Origin,
  keep: () => void,
): Promise<void> {
  const [captured] = await Promise.allSettled([hooks.capture()]);
  if (nodes.length > 0) await graph.append({ nodes }, origin, keep);
  else
    await stored.write(() => {
      keep();
      return stored.dirty ? { operation: "operation" } : undefined;
    });
  if (captured.status === "rejected") throw captured.reason;
}

/** What the plugin threw is the cause; what the runtime says of itself (a lost worker, an abort) stays what it is. */
function operationError(thrown: unknown, name: string): TroupeError {
  if (thrown instanceof TroupeError) return thrown;
  const cause = asTroupeError(thrown, "operation_failed");
  return new TroupeError("operation_failed", `${name} failed: ${cause.message}`, { cause: thrown });
}
