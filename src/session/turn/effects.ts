import { untilAborted } from "../../async/index.js";
import { NO_DIRECTIVES, type TurnEffect, type TurnEvent, type TurnSummary } from "../../kernel/index.js";
import { readFrameSwitch } from "../plugins/index.js";
import {
  askModel,
  issueOf,
  orRefused,
  passCheckpoint,
  protocolHost,
  runTools,
  runTurnCode,
  settleOrIssue,
  siteDirectives,
  type TurnScope,
} from "../work/index.js";
import { captureTurn, commitTurn } from "./turn-commit.js";

/** Does what the machine asks for. What nobody has a hook for is answered at once. */
export function performEffect(
  turn: TurnScope,
  effect: Exclude<TurnEffect, { type: "emit" }>,
): TurnEvent | Promise<TurnEvent> {
  const { hooks } = turn.session;
  switch (effect.type) {
    case "before_turn":
      if (hooks.has("context_transform") || hooks.has("before_turn")) return beforeTurn(turn);
      return { type: "before_turn_done", directives: NO_DIRECTIVES };
    case "prompt":
      return turn.context.prompt();
    case "before_model":
      return beforeModel(turn, effect.step);
    case "code":
      return runTurnCode(turn, effect);
    case "model":
      return askModel(turn, effect.step);
    case "tools":
      return runTools(turn, effect);
    case "checkpoint":
      return passCheckpoint(turn, effect.checkpoint);
    case "after_turn":
      if (turn.request.keepsInputs && isCancelled(effect.summary)) throw turn.request.signal.reason;
      if (!turn.beginning.poisoned && (hooks.has("after_turn") || hooks.has("turn_finalized")))
        return afterTurn(turn, effect);
      return { type: "after_turn_done", directives: NO_DIRECTIVES };
    case "capture":
      return captureTurn(turn);
    case "commit":
      return commitTurn(turn, effect);
    case "deliver":
      return hooks.has("turn_persisted") ? deliver(turn, effect) : { type: "delivered" };
  }
}

async function beforeTurn(turn: TurnScope): Promise<TurnEvent> {
  const { context, request, session } = turn;
  const { signal } = request;
  const messageCount = session.past.known ?? (await session.past.count());
  const facts = (pluginId: string) => ({ ...context.beginning(pluginId), messageCount });
  try {
    const prepared = await orRefused("context_prepare_turn", "A context transform failed", () =>
      context.prepare(messageCount),
    );
    if (prepared !== undefined) await context.adopt(prepared);
    const directives = await orRefused("plugin_prepare_turn", "A beforeTurn hook failed", () =>
      siteDirectives(turn, "before_turn", facts, { signal }),
    );
    return { type: "before_turn_done", directives };
  } catch (error) {
    // A turn that was cancelled while its hooks ran is a cancelled turn, not a failed hook.
    if (signal.aborted) return { type: "before_turn_done", directives: NO_DIRECTIVES };
    throw error;
  }
}

/** The protocol may leave for another frame instead of calling the model. */
async function beforeModel(turn: TurnScope, step: number): Promise<TurnEvent> {
  const { context, facts, request, session, state } = turn;
  const { protocol } = session;
  const { signal, extras } = request;
  const pluginId = protocol.ownerOf("session");
  const call = {
    sessionId: session.id,
    turnId: facts.turnId,
    step,
    messages: [...context.messages, ...state.messages],
    turnOptions: context.protocolOptions,
    latestUsage: context.latestUsage,
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

async function afterTurn(
  turn: TurnScope,
  { summary }: Extract<TurnEffect, { type: "after_turn" }>,
): Promise<TurnEvent> {
  const facts = { ...turn.facts, turn: summary };
  const directives = await orRefused("plugin_finalize_turn", "An afterTurn hook failed", () =>
    siteDirectives(turn, "after_turn", facts),
  );
  const issues = await turn.session.hooks.announce("turn_finalized", facts);
  return { type: "after_turn_done", directives, issues };
}

async function deliver(
  { session, facts }: TurnScope,
  { summary, revision }: Extract<TurnEffect, { type: "deliver" }>,
): Promise<TurnEvent> {
  const issues = await session.hooks.announce("turn_persisted", { ...facts, turn: summary, revision });
  return { type: "delivered", issues: [...issues, ...(await settleOrIssue(session))] };
}

function isCancelled({ outcome }: TurnSummary): boolean {
  return outcome.type === "stopped" && outcome.reason === "cancelled";
}
