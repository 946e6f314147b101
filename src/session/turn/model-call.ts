import { loopTurn, untilAborted } from "../../async/index.js";
import {
  type AttachmentPart,
  type AttemptRecord,
  aborted,
  asTroupeError,
  type ModelCallRecord,
  type ModelRequest,
  type ModelResponse,
  mergeModelOptions,
  modelCallIdOf,
  type ProtocolStep,
  providerCallIdsOf,
  type ReplayDrop,
  retryPolicyOf,
  type TroupeError,
  type TurnEffect,
  type TurnEvent,
  type TurnIssue,
  type UnstoredMessage,
  withUnstored,
} from "../../kernel/index.js";
import { type Candidate, type Model, routeOf, streamWithRetry } from "../../model/index.js";
import type { HookKind, StreamEnd, TurnFacts } from "../../plugin/index.js";
import { inForm } from "../../tools/index.js";
import { eventError } from "../../trace/index.js";
import type { TurnCatalog } from "../protocol/index.js";
import { haveAttachments } from "../stored/index.js";
import { envelopeOf } from "./asked-with.js";
import { isSpentElsewhere, paidByOthers } from "./paid-call.js";
import { respond, retell, shownOf } from "./response-hooks.js";
import { type FileEvent, StreamPump } from "./stream.js";
import { type AttachedBytes, attachAgain, bytesBeside } from "./tools/tool-content.js";
import type { Turn } from "./turn.js";
import { untilPeople } from "./turn-deadline.js";
import { isStoreFailure, issueOf, promptFailed, replayIssue } from "./turn-session.js";
import { watchedCall } from "./watched-call.js";

/** A model that always has more to say is left alone for so many events; then whatever else waits has its turn. */
const BURST = 256;

/** `options`: what plugins said of this call alone. `earlier`: attempts of it that were made with another context. */
type AskedCall = Pick<Extract<TurnEffect, { type: "model" }>, "step" | "options"> & {
  readonly earlier?: readonly AttemptRecord[] | undefined;
};

/** Calls the model. Tools that changed since the last call are as they are now; when none did, nothing is awaited for them. */
export function askModel(turn: Turn, asked: AskedCall): TurnEvent | Promise<TurnEvent> {
  const why = turn.session.spending.whySpent();
  if (why !== undefined) return budgetSpent(turn, asked, why);
  const { signal } = turn.request;
  const crowd = signal.aborted ? undefined : turn.session.spending.crowd();
  if (crowd !== undefined) {
    const again = () => askModel(turn, asked);
    return untilAborted(crowd, signal).then(again, again);
  }
  try {
    const resolved = turn.resolveCatalog();
    if (!(resolved instanceof Promise)) return counted(turn, asked, resolved);
    return resolved.then((catalog) => counted(turn, asked, catalog), promptFailed);
  } catch (error) {
    return promptFailed(error);
  }
}

/** While the call of a session with a budget is under way, its children know of it. */
function counted(turn: Turn, asked: AskedCall, catalog: TurnCatalog): Promise<TurnEvent> {
  const { spending } = turn.session;
  const called = callWith(turn, asked, catalog);
  return spending.budget === null ? called : called.finally(spending.children.own());
}

/** A spent budget ends the turn, or keeps it waiting until somebody raises it. */
async function budgetSpent(turn: Turn, asked: AskedCall, message: string): Promise<TurnEvent> {
  const { emit, signal } = turn.request;
  const { spending } = turn.session;
  const spent: TurnEvent = { type: "budget_spent", issue: { kind: "runtime", code: "budget_spent", message } };
  if (spending.budget?.whenSpent !== "pause") return spent;
  emit({ type: "turn_paused", code: "budget_spent", message });
  await untilPeople(turn, spending.untilRaised(signal));
  emit({ type: "turn_resumed" });
  return signal.aborted ? spent : askModel(turn, asked);
}

/** One call of the model in a turn, and how it goes, written down on the way. */
interface ModelCall {
  readonly turn: Turn;
  readonly facts: TurnFacts & { readonly step: number };
  readonly request: ModelRequest;
  readonly pump: StreamPump;
  readonly earlier: readonly AttemptRecord[];
  attempts: AttemptRecord[];
  /** Who is being asked, and whether somebody was asked before. */
  model: Model;
  hasFallenBack: boolean;
  /** See {@link Answer.volatile}. */
  readonly volatile: string | undefined;
  /** See {@link Answer.inherited}. */
  readonly inherited: readonly UnstoredMessage[] | undefined;
  /** The whole answer, once it is there. */
  said: ModelResponse | undefined;
  replayDrops: readonly ReplayDrop[] | undefined;
}

interface Answer {
  readonly response: ModelResponse;
  readonly aborted: boolean;
  readonly record: ModelCallRecord;
  /** What changes every turn, as this call was the first to read it. */
  readonly volatile?: string;
  /** What the turn reads beside the history, said by its first call: a turn that is taken up again reads it too. */
  readonly inherited?: readonly UnstoredMessage[];
}

async function callWith(
  turn: Turn,
  { step, options: own, earlier = NO_ATTEMPTS }: AskedCall,
  all: TurnCatalog,
): Promise<TurnEvent> {
  const { session, request, state } = turn;
  const options = mergeModelOptions([turn.calling.modelOptions, own]);
  const catalog = options?.activeTools === undefined ? all : all.only(options.activeTools);
  const facts = { step, ...turn.facts };
  const place = { step, after: state.messages.length };
  turn.use(catalog);
  const recording = turn.recordCall(step, all);
  if (recording !== undefined) await recording;
  // Asked again, it reads it where it read it first.
  if (earlier.length > 0) turn.notes.keep(undefined, place);
  const volatile = turn.notes.say(turn.volatile, place);
  const call: ModelCall = {
    turn,
    facts,
    request: {
      sessionId: session.id,
      turnId: facts.turnId,
      step,
      system: turn.system,
      history: withUnstored(turn.history, turn.inherited),
      turn: turn.notes.within(state.messages),
      tools: catalog.preamble.toolSpecs,
      ...(options !== undefined && { options }),
      ...(request.extras.output && { output: request.extras.output }),
      ...cacheOf(turn),
    },
    volatile,
    inherited: state.modelCallRecords.length === 0 && turn.inherited.length > 0 ? turn.inherited : undefined,
    pump: new StreamPump({
      hooks: session.hooks,
      facts,
      emit: request.emit,
      isShown: request.isShown,
      signal: request.signal,
      earlierCalls: () => providerCallIdsOf(state.messages),
      newCallId: () => `call_${session.services.clock.uuid().replaceAll("-", "")}`,
      keepFile: (file) => keptFile(turn, file),
    }),
    earlier,
    attempts: [...earlier],
    model: turn.beginning.model,
    hasFallenBack: false,
    said: undefined,
    replayDrops: undefined,
  };
  let answer: Answer;
  try {
    answer = await answered(call);
  } catch (error) {
    if (isSpentElsewhere(error)) return { type: "budget_spent", issue: issueOf("runtime", "budget_spent", error) };
    return failed(call, asTroupeError(error, "model_failed"));
  }
  const { response, aborted, record } = answer;
  // Taken up again, the turn goes on with what its calls had read, also where that would be another text by now.
  if (answer.volatile !== volatile) turn.notes.keep(answer.volatile, place);
  if (answer.inherited !== undefined) turn.inherited = answer.inherited;
  const broken = session.prefixWatch?.sees(watchedCall(turn, call.request, record));
  turn.latestUsage = response.usage;
  session.past.promptTokens = response.usage.inputTokens;
  const reading = formed(turn, response, interpret(catalog, response));
  const read = reading instanceof Promise ? await reading : reading;
  const finished = finishStream(call, aborted ? "aborted" : "complete");
  const issues = finished instanceof Promise ? await finished : finished;
  const told = "misfit" in read ? { ...record, misfit: read.misfit } : record;
  return { type: "model_done", response, record: told, issues: broken ? [broken, ...issues] : issues, ...read };
}

const NO_ATTEMPTS: readonly AttemptRecord[] = [];

type Read = { readonly next: ProtocolStep; readonly misfit?: string } | { readonly issue: TurnIssue };

/** The answer that ends a turn has the form the turn was asked for in, or the model is told what is wrong. */
function formed({ session, request }: Turn, response: ModelResponse, read: Read): Read | Promise<Read> {
  const { output } = request.extras;
  if (output === undefined || "issue" in read) return read;
  const { checks } = session.services;
  return inForm({ response, next: read.next }, output, { checks, sessionId: session.id, signal: request.signal });
}

/** What the provider is told about caching. A family of forks has one key: their requests begin alike. */
export function cacheOf({ session: { stored }, config, notes }: Turn): Pick<ModelRequest, "cache"> {
  const { cache: policy } = config;
  if (policy === "off") return {};
  return { cache: { policy, key: stored.cacheKey, stable: notes.stable } };
}

/** Streams an answer through the stream hooks, then has the response hooks look at the whole. */
async function answered(call: ModelCall): Promise<Answer> {
  const { session, state } = call.turn;
  let { request } = call;
  if (session.past.hasAttachments || haveAttachments(state.messages))
    request = { ...request, attachments: await session.blobs.of(request.history, request.turn) };
  const answer = await paidOnce(call, () => paidByOthers(call, () => stream(call, request)));
  call.said = answer.response;
  if (!session.hooks.has("assistant_response")) return answer;
  return { ...answer, response: await respond(call, answer.response) };
}

/** What the model had charged by then is told with what went wrong. */
async function failed(call: ModelCall, error: TroupeError): Promise<TurnEvent> {
  // A turn that cannot be written down cannot go on; one that does not repeat itself must not.
  if (isStoreFailure(error)) throw error;
  if (error.code === "replay_mismatch") return { type: "prompt_failed", issue: replayIssue(error) };
  // What it came with is not accepted any more: the next turn's is made with what the host gives then.
  if (error.code === "model_auth_failed") call.turn.session.services.instances.refused(call.model);
  keepPartial(call);
  const { cost } = call.pump;
  const record = recordOf(call);
  const issues = await finishStream(call, call.turn.request.signal.aborted ? "cancelled" : "provider_error");
  const issue = issueOf("model", error.code, error);
  const { shown, issues: unkept } = await shownOf(call, call.said ?? call.pump.response.build());
  const more = { ...(cost && { usage: cost }), ...(shown && { shown }) };
  return { type: "model_failed", issue, issues: [...issues, ...unkept], record, ...more };
}

/** A paid answer is durable before a hook sees it or a tool runs for it; the last one is stored with the turn itself. */
function paidOnce({ turn: scope, request }: ModelCall, run: () => Promise<Answer>): Answer | Promise<Answer> {
  const { hooks } = scope.session;
  return scope.journal.once<Answer, Answer & AttachedBytes>({
    key: `model:${request.step}`,
    envelope: () => envelopeOf(scope, request),
    earlier: () => envelopeOf(scope, { ...request, system: scope.unsplitSystem() }),
    // What was paid for counts, also where hooks word the turn's messages in another way now.
    counts: () => true,
    run,
    keep: (answer) => {
      const beside = bytesBeside(scope, answer.response.parts);
      return beside.attached === undefined ? answer : { ...answer, ...beside };
    },
    found: ({ attached, ...answer }) => {
      if (attached !== undefined) attachAgain(scope, { attached });
      retell(scope, answer.response);
      return answer;
    },
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

function recordOf({ facts, model, attempts, replayDrops }: ModelCall): ModelCallRecord {
  return {
    modelCallId: modelCallIdOf(facts.turnId, facts.step),
    step: facts.step,
    model: model.id,
    route: routeOf(model),
    attempts,
    ...(replayDrops !== undefined && { replayDrops }),
  };
}

/** Every attempt that was answered is paid for, whatever becomes of the answer. */
function count({ turn, attempts, model: { id } }: ModelCall): void {
  const { tokens } = turn.session.services;
  for (const { usage, model = id } of attempts)
    if (usage !== undefined) tokens.count({ model, agent: turn.session.agent.name }, usage);
}

/** What had come of an answer that broke off was paid for: it is written down, and goes no further. */
function keepPartial({ attempts, pump }: ModelCall): void {
  const last = attempts.at(-1);
  const partial = pump.response.build().parts;
  if (last === undefined || last.outcome === "completed" || partial.length === 0) return;
  attempts[attempts.length - 1] = { ...last, partial };
}

/**
 * Who is asked, in this order. A turn stays with the one that answered its last call: who failed a moment ago is not tried
 * again with every step, and what an answer carries for its own route goes back to it. The records say who that is, so a
 * turn that is taken up again asks the same.
 */
function candidatesOf({ beginning, state, callLayers }: Turn): readonly Candidate[] {
  const { model, fallbacks } = beginning;
  if (fallbacks.length === 0) return [{ model, retry: retryPolicyOf(callLayers, model.modelRetry) }];
  const candidates = [model, ...fallbacks].map((candidate) => ({
    model: candidate,
    retry: retryPolicyOf(callLayers, candidate.modelRetry),
  }));
  const last = state.modelCallRecords.at(-1)?.route;
  return candidates.slice(
    Math.max(
      0,
      candidates.findIndex((candidate) => routeOf(candidate.model) === last),
    ),
  );
}

/** Notes that another model is asked, and with the attempts so far whose they were. */
function fallBack(call: ModelCall, from: Model, to: Model): void {
  call.attempts = call.attempts.map((attempt) => ({ model: from.id, ...attempt }));
  call.hasFallenBack = true;
  call.model = to;
  call.replayDrops = undefined;
}

async function stream(call: ModelCall, request: ModelRequest): Promise<Answer> {
  const { turn, facts, pump } = call;
  const { clock, events: told, firstToken } = turn.session.services;
  const { emit } = turn.request;
  const { step, turnId } = facts;
  const named = { modelCallId: modelCallIdOf(turnId, step), step };
  const where = { session: turn.session.id, turn: turnId, step };
  // Cancelled since the turn asked for the call: nobody is asked any more.
  if (turn.request.signal.aborted) throw aborted(turn.request.signal);
  const [first, ...fallbacks] = candidatesOf(turn) as [Candidate, ...Candidate[]];
  call.model = first.model;
  const signal = pump.stop === undefined ? turn.request.signal : AbortSignal.any([turn.request.signal, pump.stop]);
  try {
    const events = streamWithRetry(first.model, request, {
      signal,
      giveUp: turn.request.signal,
      clock,
      retry: first.retry,
      fallbacks,
      onRetry: ({ attempt, delayMs, error }) => {
        const { code } = error;
        emit({ type: "model_retry", ...named, attempt, code, delayMs });
        const model = call.model.id;
        told?.emit({ type: "model_retry", ...where, model, attempt, code, delayMs, error: eventError(error) });
      },
      onFallback: ({ from, to, error }) => {
        const { code } = error;
        fallBack(call, from, to);
        emit({ type: "model_fallback", ...named, from: from.id, to: to.id, code });
        told?.emit({ type: "model_fallback", ...where, from: from.id, to: to.id, code, error: eventError(error) });
      },
      onAttempt: (made, { id }) => {
        const attempt = { ...made, attempt: made.attempt + call.earlier.length };
        if (attempt.firstTokenMs !== undefined) firstToken(id, attempt.firstTokenMs);
        call.attempts.push(call.hasFallenBack ? { ...attempt, model: id } : attempt);
      },
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
    return answerOf(call);
  } catch (error) {
    await pump.drain();
    if (pump.aborted && !turn.request.signal.aborted) return answerOf(call);
    throw error;
  } finally {
    count(call);
  }
}

/** The answer as it came, with what the call was the first to read. */
function answerOf(call: ModelCall): Answer {
  const { pump, volatile, inherited } = call;
  const { aborted } = pump;
  const response = aborted ? cutShort(pump) : pump.response.build();
  const read = { ...(volatile !== undefined && { volatile }), ...(inherited && { inherited }) };
  return { response, aborted, record: recordOf(call), ...read };
}

/** What a stream hook let through before it ended the call. The cost is known when the model had said it by then. */
function cutShort({ response, cost }: StreamPump): ModelResponse {
  return { ...response.build("stop"), ...(cost && { usage: cost }) };
}

/** A file the model made, as a part that names its bytes: they are stored with the turn. */
function keptFile({ session, attached }: Turn, { mediaType, data, metadata }: FileEvent): AttachmentPart {
  const part = { type: "attachment", mediaType, ...(metadata && { metadata }) } as const;
  if (data instanceof URL) return { ...part, source: { kind: "url", url: data.href } };
  const { hash, bytes } = session.blobs.keep(data);
  attached.push(hash);
  return { ...part, source: { kind: "stored", hash, bytes } };
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
function finishStream(
  { turn, facts }: ModelCall,
  reason: StreamEnd,
): readonly TurnIssue[] | Promise<readonly TurnIssue[]> {
  return turn.session.hooks.announce("stream_finished", { reason, ...facts });
}
