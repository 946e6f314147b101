import { loopTurn } from "../../async/index.js";
import {
  type AttemptRecord,
  aborted,
  asTroupeError,
  type Json,
  type ModelCallRecord,
  type ModelRequest,
  type ModelResponse,
  modelCallIdOf,
  type ProtocolStep,
  type ReplayDrop,
  TroupeError,
  type TurnEvent,
  type TurnIssue,
} from "../../kernel/index.js";
import { routeOf, streamWithRetry } from "../../model/index.js";
import type { HookKind, StreamEnd, TurnFacts } from "../../plugin/index.js";
import { readResponseTransform } from "../plugins/index.js";
import type { TurnCatalog } from "../protocol/index.js";
import { haveAttachments } from "../stored/index.js";
import { StreamPump } from "./stream.js";
import { promptFailed, replayIssue, type Turn } from "./turn.js";
import { issueOf } from "./turn-session.js";

/** A model that always has more to say is left alone for so many events; then whatever else waits has its turn. */
const BURST = 256;

/** Calls the model. Tools that changed since the last call are as they are now; when none did, nothing is awaited for them. */
export function askModel(turn: Turn, step: number): TurnEvent | Promise<TurnEvent> {
  const why = turn.session.spending.whySpent();
  if (why !== undefined) return budgetSpent(turn, step, why);
  try {
    const resolved = turn.resolveCatalog();
    if (!(resolved instanceof Promise)) return callWith(turn, step, resolved);
    return resolved.then((catalog) => callWith(turn, step, catalog), promptFailed);
  } catch (error) {
    return promptFailed(error);
  }
}

/** A spent budget ends the turn, or keeps it waiting until somebody raises it. */
async function budgetSpent(turn: Turn, step: number, message: string): Promise<TurnEvent> {
  const { emit, signal } = turn.request;
  const { spending } = turn.session;
  const spent: TurnEvent = { type: "budget_spent", issue: { kind: "runtime", code: "budget_spent", message } };
  if (spending.budget?.whenSpent !== "pause") return spent;
  emit({ type: "turn_paused", code: "budget_spent", message });
  await spending.untilRaised(signal);
  emit({ type: "turn_resumed" });
  return signal.aborted ? spent : askModel(turn, step);
}

/** One call of the model in a turn, and how it goes, written down on the way. */
interface ModelCall {
  readonly turn: Turn;
  readonly facts: TurnFacts & { readonly step: number };
  readonly request: ModelRequest;
  readonly pump: StreamPump;
  readonly attempts: AttemptRecord[];
  replayDrops: readonly ReplayDrop[] | undefined;
}

interface Answer {
  readonly response: ModelResponse;
  readonly aborted: boolean;
  readonly record: ModelCallRecord;
}

async function callWith(turn: Turn, step: number, catalog: TurnCatalog): Promise<TurnEvent> {
  const { session, request, state } = turn;
  const facts = { ...turn.facts, step };
  turn.use(catalog);
  const call: ModelCall = {
    turn,
    facts,
    request: {
      sessionId: session.id,
      turnId: facts.turnId,
      step,
      system: turn.system,
      history: turn.history,
      turn: state.messages,
      tools: catalog.preamble.toolSpecs,
    },
    pump: new StreamPump({ hooks: session.hooks, facts, emit: request.emit, signal: request.signal }),
    attempts: [],
    replayDrops: undefined,
  };
  let answer: Answer;
  try {
    answer = await answered(call);
  } catch (error) {
    return failed(call, asTroupeError(error, "model_failed"));
  }
  const { response, aborted, record } = answer;
  turn.latestUsage = response.usage;
  session.past.promptTokens = response.usage.inputTokens;
  const read = interpret(catalog, response);
  const issues = await finishStream(call, aborted ? "aborted" : "complete");
  return { type: "model_done", response, record, issues, ...read };
}

/** Streams an answer through the stream hooks, then has the response hooks look at the whole. */
async function answered(call: ModelCall): Promise<Answer> {
  const { session, state } = call.turn;
  let { request } = call;
  if (session.past.hasAttachments || haveAttachments(state.messages))
    request = { ...request, attachments: await session.blobs.of(request.history, request.turn) };
  const { response, aborted, record } = await paidOnce(call, async () => {
    const streamed = await stream(call, request);
    return { ...streamed, record: recordOf(call) };
  });
  return { response: await respond(call, response), aborted, record };
}

/** What the model had charged by then is told with what went wrong. */
async function failed(call: ModelCall, error: TroupeError): Promise<TurnEvent> {
  // A turn that cannot be written down cannot go on; one that does not repeat itself must not.
  if (STORE_CODES.includes(error.code)) throw error;
  if (error.code === "replay_mismatch") return { type: "prompt_failed", issue: replayIssue(error) };
  keepPartial(call);
  const { cost } = call.pump;
  const record = recordOf(call);
  const issues = await finishStream(call, call.turn.request.signal.aborted ? "cancelled" : "provider_error");
  const issue = issueOf("model", error.code, error);
  return { type: "model_failed", issue, issues, record, ...(cost && { usage: cost }) };
}

const STORE_CODES: readonly string[] = [
  "store_write_failed",
  "store_closed",
  "store_lost",
  "head_conflict",
  "session_moved",
  "commit_too_large",
];

/** A paid answer is durable before a hook sees it or a tool runs for it; the last one is stored with the turn itself. */
function paidOnce({ turn: scope, request }: ModelCall, run: () => Promise<Answer>): Answer | Promise<Answer> {
  const { hooks } = scope.session;
  const { step, system, tools, turn } = request;
  return scope.journal.once({
    key: `model:${step}`,
    envelope: () => ({
      model: scope.beginning.model.id,
      system,
      tools: tools.map(({ name }) => name),
      turn: turn as unknown as Json,
    }),
    run,
    owes: ({ response: { parts } }) =>
      !SEEN_BY.some((kind) => hooks.has(kind)) && parts.every(({ type }) => type === "text"),
    changes: () => hooks.pluginsWith(...STREAMED_TO),
  });
}

/** Hooks that see an answer while it comes, and do not see it again. */
const STREAMED_TO: readonly HookKind[] = ["assistant_stream", "assistant_prose_projector"];

/** Hooks that see an answer, or come between it and the commit. */
const SEEN_BY: readonly HookKind[] = [
  ...STREAMED_TO,
  "assistant_response",
  "stream_finished",
  "checkpoint",
  "after_turn",
  "turn_finalized",
];

function recordOf({ turn, facts, attempts, replayDrops }: ModelCall): ModelCallRecord {
  const { model } = turn.beginning;
  return {
    modelCallId: modelCallIdOf(facts.turnId, facts.step),
    step: facts.step,
    model: model.id,
    route: routeOf(model),
    attempts,
    ...(replayDrops !== undefined && { replayDrops }),
  };
}

/** What had come of an answer that broke off was paid for: it is written down, and goes no further. */
function keepPartial({ attempts, pump }: ModelCall): void {
  const last = attempts.at(-1);
  const partial = pump.response.build().parts;
  if (last === undefined || last.outcome === "completed" || partial.length === 0) return;
  attempts[attempts.length - 1] = { ...last, partial };
}

async function stream(call: ModelCall, request: ModelRequest): Promise<Omit<Answer, "record">> {
  const { turn, facts, pump, attempts } = call;
  const { clock } = turn.session.services;
  const { emit } = turn.request;
  const { step, turnId } = facts;
  const signal = pump.stop === undefined ? turn.request.signal : AbortSignal.any([turn.request.signal, pump.stop]);
  try {
    const events = streamWithRetry(turn.beginning.model, request, {
      signal,
      clock,
      onRetry: ({ attempt, delayMs, error: { code } }) =>
        emit({ type: "model_retry", modelCallId: modelCallIdOf(turnId, step), step, attempt, code, delayMs }),
      onAttempt: (attempt) => attempts.push(attempt),
      onReplayDropped: (drops) => {
        call.replayDrops = drops;
      },
    });
    let burst = 0;
    for await (const event of events) {
      pump.push(event);
      if (++burst < BURST) continue;
      burst = 0;
      await loopTurn(clock);
      if (signal.aborted) throw aborted(signal);
    }
    await pump.drain();
    return pump.aborted ? cutShort(pump) : { response: pump.response.build(), aborted: false };
  } catch (error) {
    await pump.drain();
    if (pump.aborted && !turn.request.signal.aborted) return cutShort(pump);
    throw error;
  }
}

/** What a stream hook let through before it ended the call. The cost is known when the model had said it by then. */
function cutShort({ response, cost }: StreamPump): Omit<Answer, "record"> {
  return { response: { ...response.build("stop"), ...(cost && { usage: cost }) }, aborted: true };
}

async function respond({ turn, facts }: ModelCall, raw: ModelResponse): Promise<ModelResponse> {
  const { hooks } = turn.session;
  const { emit, signal } = turn.request;
  if (!hooks.has("assistant_response")) return raw;
  let response = raw;
  try {
    await hooks.each(
      "assistant_response",
      () => ({ ...facts, response }),
      (answer, pluginId) => {
        const transform = readResponseTransform(answer, response, pluginId);
        response = transform.response;
        for (const event of transform.events) emit({ type: "plugin_event", pluginId, event });
      },
      { signal },
    );
    return response;
  } catch (cause) {
    const { message } = asTroupeError(cause, "hook_failed");
    throw new TroupeError("plugin_assistant_response", `A response hook failed: ${message}`, { cause });
  }
}

/** What the protocol makes of an answer; making nothing of it ends the turn. */
function interpret({ preamble }: TurnCatalog, response: ModelResponse): { next: ProtocolStep } | { issue: TurnIssue } {
  try {
    return { next: preamble.interpret(response) };
  } catch (error) {
    return { issue: issueOf("plugin", "protocol_failed", error) };
  }
}

/** Every call that was begun is told to have ended; what goes wrong there is an issue, never the turn's end. */
function finishStream({ turn, facts }: ModelCall, reason: StreamEnd): Promise<readonly TurnIssue[]> {
  return turn.session.hooks.announce("stream_finished", { ...facts, reason });
}
