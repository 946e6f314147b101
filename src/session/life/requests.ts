import {
  type AppendNode,
  aborted,
  asTroupeError,
  changeConfig,
  type Json,
  messageOf,
  operationFailed,
  type PendingInput,
  type SessionConfig,
  sameConfig,
  TroupeError,
  type TurnIssue,
} from "../../kernel/index.js";
import { needsItsTurn, operationSession } from "../../plugin/index.js";
import type { ConfigReceipt, OperationReceipt, ToldBy } from "../calls/index.js";
import { readConfigChange, readOutcome } from "../plugins/index.js";
import type { Session } from "../state/index.js";
import { askCompactors, openCompacted, settleOrIssue } from "../turn/index.js";
import { replacedText } from "./replaced-inputs.js";

export type OperationRequest = ToldBy<"operate"> & {
  readonly signal: AbortSignal;
  /** Told when a task has begun: an abort then asks it to stop, and the caller waits for its answer. */
  readonly onTask?: () => void;
};

interface OperationDone {
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
  const turns: string[] = [];
  for (const { input } of directives) turns.push(await replacedText(session, input, { arrival: "enqueue", signal }));
  const receipt: OperationReceipt = { output, events: events.map((value) => ({ pluginId, value })), turns };
  if (!needsItsTurn(spec)) return { receipt, queued: [] };
  const { clock } = session.services;
  const queued = receipt.turns.map(
    (text): PendingInput => ({ id: clock.uuid(), text, waitsFor: { kind: "next_turn" }, ownTurn: true }),
  );
  const nodes = events.map(
    (event): AppendNode => ({ kind: "plugin", pluginType: `event.${event.name}`, body: event.payload ?? null }),
  );
  const keep = () => {
    if (queued.length > 0) session.inputs.addTurns(queued);
    if (key !== undefined) session.receipts.keepOperation(key, name, receipt);
  };
  // What it told and what it changed are one write, also for a session that was never stored.
  const { hooks, graph, stored } = session;
  const [captured] = await Promise.allSettled([hooks.capture()]);
  if (nodes.length > 0) await graph.append({ nodes }, { kind: "plugin", pluginId }, keep);
  else
    await stored.write(() => {
      keep();
      return stored.dirty ? { operation: "operation" } : undefined;
    });
  if (captured.status === "rejected") throw captured.reason;
  return { receipt, queued };
}

/** What the plugin threw is the cause; what the runtime says of itself (a lost worker, an abort) stays what it is. */
function operationError(thrown: unknown, name: string): TroupeError {
  if (thrown instanceof TroupeError) return thrown;
  return operationFailed(name, messageOf(thrown), { cause: thrown });
}

/**
 * Changes a session's configuration: what was asked for, then what the mutators make of it, then it is stored, then it
 * is told. A mutator that fails is passed over; nobody can undo the change afterwards. When nothing changes, nobody is
 * asked.
 */
export async function configureSession(session: Session, change: Partial<SessionConfig>): Promise<ConfigReceipt> {
  const { hooks, id: sessionId } = session;
  const { config: previous } = session.settings;
  const changed = (from: SessionConfig, to: Partial<SessionConfig>): SessionConfig => {
    const next = changeConfig(from, to);
    // Told now, and not by every turn from now on.
    if (to.model != null) session.settings.checkModel(to.model);
    return next;
  };
  const current = changed(previous, change);
  if (current === previous) return { config: previous, changed: false, issues: [] };
  const issues: TurnIssue[] = [];
  let config = current;
  const facts = () => ({ sessionId, previous, current, config });
  for await (const { pluginId, answer } of hooks.oneByOne("session_config_mutator", facts, readConfigChange)) {
    try {
      config = changed(config, answer());
    } catch (error) {
      const { message } = asTroupeError(error, "hook_failed");
      issues.push({ kind: "plugin", code: "config_mutator_failed", message, pluginId });
    }
  }
  if (sameConfig(previous, config)) return { config: previous, changed: false, issues };
  session.settings.change(config);
  await session.stored.store("config");
  issues.push(...(await hooks.announce("session_config_changed", { sessionId, previous, current: config })));
  issues.push(...(await settleOrIssue(session)));
  return { config, changed: true, issues };
}

/** What an extension changes in the code executor is stored before it is answered. */
export async function extendSession({ protocol, stored }: Session, extension: Json): Promise<void> {
  await protocol.applyExtension(extension);
  if ((await protocol.captureExecution()) !== undefined) await stored.store("extension");
}

/**
 * Has the conversation summed up by whoever has something to say: see {@link askCompactors}. False when nobody has. The
 * old frame stays readable.
 */
export async function compactSession(session: Session, instructions: string | null): Promise<boolean> {
  const { hooks, settings, stored, services, past } = session;
  if (!hooks.has("context_compactor") && settings.config.compaction === null) return false;
  const signal = new AbortController().signal;
  const messagesBefore = await past.count();
  const made = await askCompactors(session, { instructions, signal, once: (_name, run) => run() });
  if (made === undefined) return false;
  const frameId = `frame-${stored.revision + 1}`;
  await openCompacted(session, frameId, made);
  const told = {
    reason: "asked",
    frameId,
    messagesBefore,
    messages: await past.count(),
    pluginId: made.pluginId,
  } as const;
  services.events?.emit({ type: "context_compacted", session: session.id, ...told });
  return true;
}
