import { type Clock, loopTurn } from "../../async/index.js";
import {
  type Activity,
  type AttemptRecord,
  aborted,
  asTroupeError,
  type Json,
  type ModelCallRecord,
  type ModelRequest,
  type ModelResponse,
  modelCallIdOf,
  type Owned,
  type PluginEvent,
  type ReplayDrop,
  TroupeError,
  type Usage,
} from "../../kernel/index.js";
import { type Model, routeOf, streamWithRetry } from "../../model/index.js";
import type { HookKind, TurnFacts } from "../../plugin/index.js";
import type { TurnJournal } from "../journal/index.js";
import type { SessionHooks } from "../plugins/index.js";
import { readResponseTransform } from "../plugins/index.js";
import type { Blobs } from "../stored/index.js";
import { StreamPump } from "./stream.js";

/** One call of the model in a turn, with everything it passes through on its way to the history. */
export interface ModelCall {
  readonly clock: Clock;
  readonly model: Model;
  readonly request: ModelRequest;
  /** Where the attachments of the conversation are, when it has any. */
  readonly attachments: Blobs | undefined;
  /** Where the answer is kept before anybody builds on it. */
  readonly journal: TurnJournal;
  readonly hooks: SessionHooks;
  readonly facts: TurnFacts & { readonly step: number };
  readonly emit: (activity: Activity) => void;
  /** The turn's signal. */
  readonly signal: AbortSignal;
}

/** The answer as the hooks left it, or what went wrong and what the model had charged by then; how it went either way. */
export type ModelOutcome = { readonly record: ModelCallRecord } & (
  | { readonly response: ModelResponse; readonly aborted: boolean }
  | { readonly error: TroupeError; readonly cost: Usage | undefined }
);

/** A model that always has more to say is left alone for so many events; then whatever else waits has its turn. */
const BURST = 256;

/** Streams an answer through the stream hooks, then has the response hooks look at the whole. Never rejects. */
export async function callModel(call: ModelCall): Promise<ModelOutcome> {
  const { hooks, facts, emit, signal } = call;
  const projects = hooks.has("assistant_prose_projector");
  // Only a hook that sees the text can end a model call without ending the turn.
  const stop = projects || hooks.has("assistant_stream") ? new AbortController() : undefined;
  const pump = new StreamPump({
    hooks,
    facts,
    signal,
    emit,
    onPluginEvent: (event) => emitPluginEvent(emit, event),
    projectProse: projects ? (text) => projectProse(call, text) : undefined,
    onStop: () => stop?.abort(),
  });
  const log: CallLog = { attempts: [], replayDrops: undefined };
  try {
    const request =
      call.attachments === undefined ? call.request : await withAttachments(call.request, call.attachments);
    const answer = async (): Promise<Answer> => {
      const streamed = await stream({ ...call, request }, { pump, log, stop: stop?.signal });
      return { ...streamed, record: recordOf(call, log) };
    };
    const { response, aborted, record } = await paidOnce(call, answer);
    return { response: await respond(call, response), aborted, record };
  } catch (error) {
    keepPartial(log.attempts, pump);
    return { error: asTroupeError(error, "model_failed"), cost: pump.cost, record: recordOf(call, log) };
  }
}

/** A paid answer is durable before a hook sees it or a tool runs for it; the last one is stored with the turn itself. */
function paidOnce(
  { model, request: { step, system, tools, turn }, hooks, journal }: ModelCall,
  answer: () => Promise<Answer>,
): Answer | Promise<Answer> {
  return journal.once({
    key: `model:${step}`,
    envelope: () => ({ model: model.id, system, tools: tools.map(({ name }) => name), turn: turn as unknown as Json }),
    run: answer,
    owes: ({ response: { parts } }) =>
      !SEEN_BY.some((kind) => hooks.has(kind)) && parts.every(({ type }) => type === "text"),
    changes: () => hooks.pluginsWith(...STREAMED_TO),
  });
}

/** Hooks that see an answer while it comes, and do not see it again. */
const STREAMED_TO: readonly HookKind[] = ["assistant_stream", "assistant_prose_projector"];

/** Hooks that see an answer, or come between it and the commit. */
const SEEN_BY: readonly HookKind[] = [
  "assistant_stream",
  "assistant_prose_projector",
  "assistant_response",
  "stream_finished",
  "checkpoint",
  "after_turn",
  "turn_finalized",
];

interface Answer {
  readonly response: ModelResponse;
  readonly aborted: boolean;
  readonly record: ModelCallRecord;
}

async function withAttachments(request: ModelRequest, blobs: Blobs): Promise<ModelRequest> {
  return { ...request, attachments: await blobs.of(request.history, request.turn) };
}

/** How a call goes, written down on the way. */
interface CallLog {
  readonly attempts: AttemptRecord[];
  replayDrops: readonly ReplayDrop[] | undefined;
}

function recordOf({ model, facts }: ModelCall, { attempts, replayDrops }: CallLog): ModelCallRecord {
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
function keepPartial(attempts: AttemptRecord[], { response }: StreamPump): void {
  const last = attempts.at(-1);
  const partial = response.build().parts;
  if (last === undefined || last.outcome === "completed" || partial.length === 0) return;
  attempts[attempts.length - 1] = { ...last, partial };
}

async function stream(
  { clock, model, request, facts, emit, signal: turn }: ModelCall,
  { pump, log, stop }: { readonly pump: StreamPump; readonly log: CallLog; readonly stop: AbortSignal | undefined },
): Promise<{ response: ModelResponse; aborted: boolean }> {
  const { step, turnId } = facts;
  const signal = stop === undefined ? turn : AbortSignal.any([turn, stop]);
  try {
    const events = streamWithRetry(model, request, {
      signal,
      clock,
      onRetry: ({ attempt, delayMs, error: { code } }) =>
        emit({ type: "model_retry", modelCallId: modelCallIdOf(turnId, step), step, attempt, code, delayMs }),
      onAttempt: (attempt) => log.attempts.push(attempt),
      onReplayDropped: (drops) => {
        log.replayDrops = drops;
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
    if (pump.aborted && !turn.aborted) return cutShort(pump);
    throw error;
  }
}

/** What a stream hook let through before it ended the call. The cost is known when the model had said it by then. */
function cutShort({ response, cost }: StreamPump): { response: ModelResponse; aborted: boolean } {
  return { response: { ...response.build("stop"), ...(cost && { usage: cost }) }, aborted: true };
}

async function projectProse({ hooks, facts, signal }: ModelCall, text: string): Promise<string> {
  const answer = await hooks.only("assistant_prose_projector", { ...facts, text }, { signal });
  if (answer === undefined || answer === null) return text;
  if (typeof answer === "string") return answer;
  throw new TroupeError("invalid_hook_answer", "A prose projector returns a string or nothing.");
}

async function respond({ hooks, facts, emit, signal }: ModelCall, raw: ModelResponse): Promise<ModelResponse> {
  if (!hooks.has("assistant_response")) return raw;
  let response = raw;
  try {
    await hooks.each(
      "assistant_response",
      () => ({ ...facts, response }),
      (answer, pluginId) => {
        const transform = readResponseTransform(answer, response, pluginId);
        response = transform.response;
        for (const value of transform.events) emitPluginEvent(emit, { pluginId, value });
      },
      { signal },
    );
    return response;
  } catch (cause) {
    const { message } = asTroupeError(cause, "hook_failed");
    throw new TroupeError("plugin_assistant_response", `A response hook failed: ${message}`, { cause });
  }
}

function emitPluginEvent(emit: ModelCall["emit"], { pluginId, value }: Owned<PluginEvent>): void {
  emit({ type: "plugin_event", pluginId, event: value });
}
