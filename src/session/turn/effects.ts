import { ignore, untilAborted } from "../../async/index.js";
import {
  type BeforeTurnDirective,
  type CheckpointKind,
  foldTurnDirectives,
  frameTaskOf,
  keptUnstored,
  NO_DIRECTIVES,
  type Owned,
  type StorableTurn,
  type TroupeErrorCode,
  type TurnDirective,
  type TurnDirectives,
  type TurnEffect,
  type TurnEvent,
  type TurnIssue,
  type TurnOutcome,
  withText,
} from "../../kernel/index.js";
import type { HookFacts } from "../../plugin/index.js";
import type { TurnExtras } from "../calls/index.js";
import { performDirectives } from "../host-services/index.js";
import { endsHere, type TurnStart } from "../journal/index.js";
import { type HookOptions, readFrameSwitch } from "../plugins/index.js";
import type { NewFrame } from "../state/index.js";
import { callCompacting, watchesContext } from "./compaction/index.js";
import { askModel } from "./model-call.js";
import { runTools } from "./tools/tool-calls.js";
import type { Turn } from "./turn.js";
import { protocolHost, runTurnCode } from "./turn-code.js";
import { issueOf, orRefused, replayIssue, settleOrIssue } from "./turn-session.js";

/** Does what the machine asks for. What nobody has a hook for is answered at once. */
export function performEffect(
  turn: Turn,
  effect: Exclude<TurnEffect, { type: "emit" }>,
): TurnEvent | Promise<TurnEvent> {
  const { hooks } = turn.session;
  switch (effect.type) {
    case "before_turn":
      if (turn.beginning.asked !== undefined) return turn.takeUp(turn.beginning.asked);
      if (turn.replacesInput || hooks.has("context_transform") || hooks.has("before_turn")) return beforeTurn(turn);
      return { type: "before_turn_done", directives: NO_DIRECTIVES };
    case "prompt":
      return turn.prompt();
    case "before_model":
      return beforeModel(turn, effect.step);
    case "code":
      return runTurnCode(turn, effect);
    case "model":
      if (watchesContext(turn))
        return callCompacting(turn, effect, (earlier) => askModel(turn, { ...effect, earlier }));
      return askModel(turn, effect);
    case "tools":
      return runTools(turn, effect);
    case "checkpoint":
      return passCheckpoint(turn, effect.checkpoint);
    case "after_turn": {
      const { outcome } = effect.summary;
      // The runtime ends it. What somebody cancelled, or ran out of time, is stored, and takes its inputs with it.
      if (turn.request.keepsInputs && isCancelled(outcome) && turn.request.stop?.cancellation === undefined)
        throw turn.request.signal.reason;
      if (!turn.beginning.poisoned && (hooks.has("after_turn") || hooks.has("turn_finalized")))
        return afterTurn(turn, effect);
      return { type: "after_turn_done", directives: NO_DIRECTIVES };
    }
    case "capture":
      return captureTurn(turn);
    case "commit":
      return commitTurn(turn, effect);
    case "deliver":
      return hooks.has("turn_persisted") ? deliver(turn, effect) : { type: "delivered" };
  }
}

function isCancelled(outcome: TurnOutcome): boolean {
  return outcome.type === "stopped" && outcome.reason === "cancelled";
}

/** Writes down what is begun, so that it can be begun again. */
export function begin(turn: Turn): Promise<unknown> | undefined {
  const { journal, request, session, beginning, asked: askedWith, input, codeCalls } = turn;
  // Whoever asked for it asks again when its worker dies. What nobody asks for again is written down at once.
  const held = request.call !== undefined && request.again !== true && askedWith.records;
  const start = (): TurnStart => {
    const { extras, call, inputIds = [] } = request;
    const { parts: asked, stopped, name, before } = beginning;
    const parts = asked.length === 0 || input === request.input ? asked : withText(asked, input);
    const { blobs, stored } = session;
    return {
      call,
      input,
      parts,
      extras: plainExtras(extras),
      blobs: blobs.encode().map(({ bytes }) => bytes),
      inputIds,
      stopped,
      ...(codeCalls !== undefined && { codeCalls }),
      ...(name && { name }),
      ...(before && { before }),
      ...(stored.head === undefined && hasAny(stored.identity) && { identity: stored.identity }),
    };
  };
  const written = journal.begin(start, { held });
  // What is recorded next fails for the same reason, and is waited for.
  written?.catch(ignore);
  return written;
}

function hasAny(identity: object): boolean {
  return Object.keys(identity).length > 0;
}

/** Without what the journal keeps beside them: items are parts by then. */
function plainExtras({ items: _items, parts: _parts, ...extras }: TurnExtras): TurnExtras {
  return extras;
}

/**
 * Asks the hooks that may replace the turn's input, ahead of all others, and only then writes down what was begun. A turn
 * that is cancelled before they have answered goes on without its text: nobody knows whether that may be kept.
 */
async function replaceInput(turn: Turn, messageCount: number): Promise<readonly Owned<BeforeTurnDirective>[]> {
  const { session, request, beginning, journal } = turn;
  const facts = (pluginId: string, input: string) => {
    return { messageCount, arrival: "turn" as const, ...turn.beginningFor(pluginId), input };
  };
  try {
    const directives = await orRefused("plugin_prepare_turn", "A beforeTurn hook failed", () =>
      session.hooks.replacedInput(turn.input, facts, turn.hookOptions),
    );
    for (const { value } of directives) if (value.kind === "replace_input") turn.input = value.text;
    await performDirectives(session, directives);
    if (journal.held) begin(turn);
    return directives;
  } catch (error) {
    if (!request.signal.aborted || endsHere(request.signal)) throw error;
    // What a journal has of it was replaced before it was written.
    if (beginning.unfinished === undefined) turn.input = "";
    if (journal.held) begin(turn);
    throw error;
  }
}

async function beforeTurn(turn: Turn): Promise<TurnEvent> {
  const { session } = turn;
  const messageCount = session.past.known ?? (await session.past.count());
  const facts = (pluginId: string) => ({ messageCount, ...turn.beginningFor(pluginId) });
  try {
    const replaced = turn.replacesInput ? await replaceInput(turn, messageCount) : [];
    const prepared = await orRefused("context_prepare_turn", "A context transform failed", () =>
      turn.prepare(messageCount),
    );
    if (prepared !== undefined) await turn.adopt(prepared);
    const directives = await orRefused("plugin_prepare_turn", "A beforeTurn hook failed", () =>
      siteDirectives(turn, "before_turn", facts, turn.hookOptions, replaced),
    );
    turn.directives = directives;
    return { type: "before_turn_done", directives };
  } catch (error) {
    // A turn that was cancelled while its hooks ran is a cancelled turn, not a failed hook.
    if (!turn.request.signal.aborted) throw error;
    const directives = turn.replacesInput ? { ...NO_DIRECTIVES, input: turn.input } : NO_DIRECTIVES;
    return { type: "before_turn_done", directives };
  }
}

/** A site's directives: what is done at once is done, the rest is folded. */
async function siteDirectives<S extends "before_turn" | "checkpoint" | "after_turn">(
  { session }: Turn,
  site: S,
  facts: HookFacts[S] | ((pluginId: string) => HookFacts[S]),
  options: HookOptions = {},
  /** What was said before them, and performed. */
  earlier: readonly Owned<BeforeTurnDirective>[] = [],
): Promise<TurnDirectives> {
  const directives = await session.hooks.directives(site, facts, options);
  if (directives.length === 0 && earlier.length === 0) return NO_DIRECTIVES;
  await performDirectives(session, directives);
  return foldTurnDirectives([...earlier, ...(directives as readonly Owned<TurnDirective>[])]);
}

/** The protocol may leave for another frame instead of calling the model. */
async function beforeModel(turn: Turn, step: number): Promise<TurnEvent> {
  const { facts, request, session, state } = turn;
  const { protocol } = session;
  const { signal, extras } = request;
  const pluginId = protocol.ownerOf("session");
  const call = {
    sessionId: session.id,
    turnId: facts.turnId,
    step,
    messages: [...turn.history, ...state.messages],
    turnOptions: turn.protocolOptions,
    latestUsage: turn.latestUsage,
    extension: extras.extension,
    host: protocolHost(turn, { site: "before_llm_call", pluginId }),
    signal,
  };
  try {
    const asked = (async () => protocol.session.beforeLlmCall?.(call))();
    const frame = readFrameSwitch(await untilAborted(asked, signal), pluginId);
    if (frame === undefined) return { type: "before_model_done" };
    session.graph.checkNewFrame(frame.frameId);
    const { frameId, task, initialNodes = [] } = frame;
    return { type: "frame_switch", frameId, task, initialNodes };
  } catch (error) {
    return { type: "before_model_failed", issue: issueOf("plugin", "before_llm_call_failed", error) };
  }
}

/**
 * A safe point of a turn, where hooks and what was said meanwhile may change it. What a checkpoint delivered is
 * delivered again when the turn is taken up again, and nothing else.
 */
function passCheckpoint(turn: Turn, checkpoint: CheckpointKind): TurnEvent | Promise<TurnEvent> {
  const { hooks, inputs } = turn.session;
  const event = turn.journal.once<TurnEvent, CheckpointDone>({
    // There is one behind every model call.
    key: `checkpoint:${turn.state.step - 1}`,
    envelope: () => checkpoint,
    run: () => (hooks.has("checkpoint") ? checkpointHooks(turn, checkpoint) : passed(turn, checkpoint, NO_DIRECTIVES)),
    keep: (event) => (event.type === "checkpoint_done" && deliversSomething(event) ? event : undefined),
    changes: () => hooks.pluginsWith("checkpoint"),
    found: (event) => {
      inputs.takeThese((event.inputs ?? []).map(({ id }) => id));
      return event;
    },
    inside: true,
  });
  if (!(event instanceof Promise)) return event;
  return event.catch((error) => ({ type: "checkpoint_failed", issue: replayIssue(error) }));
}

async function checkpointHooks(turn: Turn, checkpoint: CheckpointKind): Promise<TurnEvent> {
  try {
    const facts = { checkpoint, step: turn.state.step, ...turn.facts };
    const directives = await siteDirectives(turn, "checkpoint", facts, { signal: turn.request.signal });
    return passed(turn, checkpoint, directives);
  } catch (error) {
    return { type: "checkpoint_failed", issue: issueOf("plugin", "plugin_checkpoint", error) };
  }
}

/** What waits for the turn is taken only when no hook ends it here: otherwise it goes on waiting. */
function passed(turn: Turn, checkpoint: CheckpointKind, directives: TurnDirectives): TurnEvent {
  const { inputs } = turn.session;
  const stays = directives.abort !== undefined || turn.request.signal.aborted || inputs.pending.length === 0;
  if (stays) return { type: "checkpoint_done", directives };
  return { type: "checkpoint_done", directives, inputs: inputs.takeAtCheckpoint(turn.facts.turnId, checkpoint) };
}

type CheckpointDone = Extract<TurnEvent, { type: "checkpoint_done" }>;

function deliversSomething({ directives, inputs = [] }: CheckpointDone): boolean {
  return inputs.length > 0 || directives !== NO_DIRECTIVES;
}

async function afterTurn(turn: Turn, { summary }: Extract<TurnEffect, { type: "after_turn" }>): Promise<TurnEvent> {
  const facts = { turn: summary, ...turn.facts };
  const directives = await orRefused("plugin_finalize_turn", "An afterTurn hook failed", () =>
    siteDirectives(turn, "after_turn", facts),
  );
  const told = turn.session.hooks.announce("turn_finalized", facts);
  const issues = told instanceof Promise ? await told : told;
  return { type: "after_turn_done", directives, issues };
}

async function deliver(
  { session, facts }: Turn,
  { summary, revision }: Extract<TurnEffect, { type: "deliver" }>,
): Promise<TurnEvent> {
  const told = session.hooks.announce("turn_persisted", { turn: summary, revision, ...facts });
  const issues = told instanceof Promise ? await told : told;
  return { type: "delivered", issues: [...issues, ...(await settleOrIssue(session))] };
}

/** Captures the state plugins and the code executor are left in; at once when nobody has any. */
function captureTurn(turn: Turn): TurnEvent | Promise<TurnEvent> {
  const { hooks, protocol } = turn.session;
  if (hooks.needCapture() || protocol.codeExecutor !== undefined) return captureState(turn);
  return { type: "captured", issues: hooks.takeUnrevised().map(unrevised) };
}

async function captureState({ session }: Turn): Promise<TurnEvent> {
  const { hooks, protocol } = session;
  const issues: TurnIssue[] = [];
  /** A capture that fails keeps the last good state and costs the turn nothing but an issue. */
  const orIssue = async (code: TroupeErrorCode, attempt: () => Promise<unknown>) => {
    try {
      await attempt();
    } catch (error) {
      if (session.life.isStale) throw error;
      issues.push(issueOf("plugin", code, error));
    }
  };
  if (hooks.needCapture()) await orIssue("plugin_capture_failed", () => hooks.capture());
  issues.push(...hooks.takeUnrevised().map(unrevised));
  if (protocol.codeExecutor !== undefined) await orIssue("execution_capture_failed", () => protocol.captureExecution());
  return { type: "captured", issues };
}

/**
 * Stores a turn with the state that was captured, in the frame it was asked in; the next one finds the frame it leaves for.
 * Whatever goes wrong entering that is an issue of a turn that is stored, and never says that it is not.
 */
async function commitTurn(running: Turn, turn: StorableTurn): Promise<TurnEvent> {
  const { session, request, beginning, journal, notes, inherited, state } = running;
  const { name, before } = beginning;
  const unstored = keptUnstored(inherited, notes.placed(state.messages));
  session.waitingCalls.settle();
  const entering = frameLeftFor(turn);
  const tenant = session.spending.tenant;
  const rows = tenant && (await tenant.countOf(turn.spent));
  session.stored.asked.keep(session.stored.head);
  journal.storing();
  const committing = session.graph.commit(turn, { name, before, call: request.call, unstored, entering, rows });
  const revision = await (tenant === undefined ? committing : committing.finally(() => tenant.ended()));
  journal.ended();
  if (entering === undefined) return { type: "committed", revision };
  const issues = await session.graph.openFrame(entering).then(
    () => [],
    (error: unknown) => [issueOf("plugin", "frame_switch_failed", error)],
  );
  return { type: "committed", revision: session.stored.revision, issues };
}

function frameLeftFor({ summary: { turnId, outcome }, initialNodes: nodes }: StorableTurn): NewFrame | undefined {
  if (outcome.type !== "frame_switch") return undefined;
  const { frameId, task } = outcome;
  const waits = { id: frameTaskOf(turnId), text: task };
  return { frameId, reason: "switch", nodes, origin: { kind: "protocol" }, task: waits };
}

function unrevised(pluginId: string): TurnIssue {
  const message = `The state of plugin ${pluginId} changed, but its snapshotRevision did not: the change is not stored.`;
  return { kind: "plugin", code: "plugin_state_unrevised", message, pluginId };
}
