import { ignore } from "../../async/index.js";
import {
  asTroupeError,
  frameTaskOf,
  type Part,
  resultOf,
  sessionClosed,
  TroupeError,
  type TurnConfig,
  type TurnEvent,
  type TurnResult,
} from "../../kernel/index.js";
import type { Model } from "../../model/index.js";
import type { TurnExtras } from "../calls/index.js";
import {
  type AskedTurn,
  askedTurn,
  endsHere,
  isSuspended,
  MAX_IDLE,
  MAX_STRIKES,
  type TurnStart,
  type UnfinishedTurn,
} from "../journal/index.js";
import type { TurnModels } from "../state/index.js";
import { attachedTo, type Blobs, storedParts, type TurnKey, turnKeyOf } from "../stored/index.js";
import { historyAsked } from "./asked-with.js";
import { begin, performEffect } from "./effects.js";
import { Turn } from "./turn.js";
import { type Admitted, issueOf, type TurnBeginning, type TurnRequest, type TurnSession } from "./turn-session.js";

/** A turn that was asked for with a text and nothing else. */
export const NO_EXTRAS: TurnExtras = Object.freeze({});

/** How often what a host asked for may move to another frame. */
const MAX_FRAME_SWITCHES = 16;

/**
 * Runs what a host asked for: one turn, or several when a turn leaves its frame with a task for the next. The last one's
 * result is the answer, with those before it. A turn that was asked for by a key before is answered and not run.
 */
export async function runTurn(session: TurnSession, request: TurnRequest): Promise<TurnResult> {
  const admitting = admit(session, request.input, request.extras);
  const admitted = admitting instanceof Promise ? await admitting : admitting;
  if (request.extras.items === undefined) return runAdmitted(session, request, admitted);
  try {
    return await runAdmitted(session, request, admitted);
  } finally {
    // Of a turn that was refused, or was there before, nothing is to be stored.
    session.blobs.release(attachedTo(admitted.parts));
  }
}

function runAdmitted(session: TurnSession, request: TurnRequest, admitted: Admitted): Promise<TurnResult> {
  const { extras, inputIds } = request;
  if (extras.key !== undefined || inputIds !== undefined) return runNamed(session, request, admitted);
  return runInFrames(session, request, { name: undefined, ...admitted });
}

/** A turn that may have been run before, or be the rest of one. */
async function runNamed(session: TurnSession, request: TurnRequest, admitted: Admitted): Promise<TurnResult> {
  const { extras, inputIds } = request;
  // What a crash kept a named turn from doing in its next frame is still that turn.
  const left = inputIds === undefined ? undefined : await session.turnKeys.leftOff(inputIds);
  if (left !== undefined) {
    const { key, content, result } = left;
    return runInFrames(session, request, { ...admitted, name: { key, content }, before: resultsUpTo(result) });
  }
  const hidden = session.hooks.replacesInput;
  const name = extras.key === undefined ? undefined : session.turnKeys.nameOf(extras.key, admitted, { hidden });
  const known = name === undefined ? undefined : await session.turnKeys.find(name);
  if (known === undefined) return runInFrames(session, request, { ...admitted, name });
  return goOnInFrames(session, request, { ...admitted, name }, known);
}

/**
 * Checks what a turn was asked for with, at once where nothing is to be waited for. Throws for what only a program gets
 * wrong; what a user sent is recorded.
 */
function admit(session: TurnSession, input: string, extras: TurnExtras): Admitted | Promise<Admitted> {
  const models = session.settings.modelsFor(extras);
  if (models instanceof Promise || extras.extension !== undefined)
    return admitLater(session, { models, input, extras });
  checkInputs(session, extras);
  return admitted(session, models, { input, extras });
}

interface Admitting {
  readonly models: TurnModels | Promise<TurnModels>;
  readonly input: string;
  readonly extras: TurnExtras;
}

async function admitLater(session: TurnSession, { models, input, extras }: Admitting): Promise<Admitted> {
  const chosen = await models;
  checkInputs(session, extras);
  if (extras.extension !== undefined) await session.protocol.validateTurnExtension(extras.extension);
  return admitted(session, chosen, { input, extras });
}

function admitted(
  session: TurnSession,
  models: TurnModels,
  { input, extras }: Pick<Admitting, "input" | "extras">,
): Admitted | Promise<Admitted> {
  const asked = askedParts(session.blobs, input, extras);
  return asked instanceof Promise ? asked.then((parts) => admittedWith(models, parts)) : admittedWith(models, asked);
}

function admittedWith({ model, fallbacks }: TurnModels, { parts, stopped }: AskedParts): Admitted {
  return { model, fallbacks, parts, ...(stopped && { stopped }) };
}

/** What single plugins are told is for plugins that are there. */
function checkInputs({ hooks }: TurnSession, { pluginInputs }: TurnExtras): void {
  if (pluginInputs !== undefined) for (const pluginId of Object.keys(pluginInputs)) hooks.of(pluginId);
}

type AskedParts = Pick<Admitted, "parts" | "stopped">;

function askedParts(blobs: Blobs, input: string, extras: TurnExtras): AskedParts | Promise<AskedParts> {
  if (extras.invalid !== undefined) return unusable(extras.invalid);
  if (extras.items === undefined) return { parts: extras.parts ?? textParts(input) };
  return storedParts(blobs, extras.items).then(
    (parts) => ({ parts }),
    (error: unknown) => {
      if (error instanceof TroupeError && error.code === "invalid_turn_input") return unusable(error.message);
      throw error;
    },
  );
}

/** What a turn that was asked for by a key is called. Nothing is kept for it. */
export async function nameOfAsked(
  blobs: Blobs,
  { key, input, extras }: { readonly key: string; readonly input: string; readonly extras: TurnExtras },
): Promise<TurnKey> {
  const asked = await askedParts(blobs, input, extras);
  if (extras.items !== undefined) blobs.release(attachedTo(asked.parts));
  return turnKeyOf(key, asked);
}

function unusable(message: string): Omit<Admitted, "model" | "fallbacks"> {
  const issue = { kind: "input", code: "invalid_turn_input", message } as const;
  return { parts: [], stopped: { reason: "invalid_input", issue } };
}

function textParts(text: string): readonly Part[] {
  return [{ type: "text", text }];
}

/** Takes a turn up again that a crash left behind: it runs as it did then, and does nothing twice that it had done. */
export async function resumeTurn(
  session: TurnSession,
  unfinished: UnfinishedTurn,
  { signal, stop, ...told }: Pick<TurnRequest, "emit" | "signal" | "stop" | "retell" | "onLeft" | "isShown">,
): Promise<TurnResult> {
  const { input, parts, extras = NO_EXTRAS, blobs, inputIds, call, stopped, name, before } = unfinished.start;
  const kept = blobs.map((bytes) => session.blobs.keep(bytes).hash);
  session.inputs.takeThese(inputIds);
  // The keys must be known when it is stored under one.
  if (name !== undefined) await session.turnKeys.find(name);
  const asked = { ...(stop && { stop }), ...(call !== undefined && { call }) };
  const request = { input, ...told, signal, extras, inputIds, ...asked };
  try {
    const asked = await askedBefore(session, unfinished);
    return await runInFrames(session, request, {
      parts,
      ...(stopped !== undefined && { stopped }),
      ...(await modelOrEnd(session, unfinished, asked)),
      name,
      ...(before !== undefined && { before }),
      unfinished,
      ...(asked !== undefined && { asked }),
    });
  } finally {
    session.blobs.release(kept);
  }
}

/** What the turn was asked with; undefined when it is taken up by doing again what it did. */
async function askedBefore(session: TurnSession, unfinished: UnfinishedTurn): Promise<AskedTurn | undefined> {
  const { services, protocol } = session;
  if (services.onMismatch === "stop") return undefined;
  const asked = await askedTurn(unfinished, services.store);
  // What was answered was said to another protocol.
  return asked?.protocol === protocol.ownerOf("driver") ? asked : undefined;
}

/** Of a turn that is stored without asking any. */
const NO_MODEL: Model = {
  id: "none",
  stream() {
    throw new Error("The turn ended before it had a model.");
  },
};

/** A turn whose worker died with it again and again is what killed it, and one whose agent or model is gone cannot go on. */
async function modelOrEnd(
  session: TurnSession,
  { start, strikes, idle }: UnfinishedTurn,
  asked: AskedTurn | undefined,
): Promise<Pick<TurnBeginning, "model" | "fallbacks" | "stopped" | "poisoned">> {
  const ended = (issue: NonNullable<TurnConfig["stopped"]>["issue"]) => ({
    model: NO_MODEL,
    fallbacks: [],
    stopped: { reason: "runtime_error" as const, issue },
  });
  if (strikes >= MAX_STRIKES || idle >= MAX_IDLE) {
    const message = `The turn's worker died with it ${idle + 1} times.`;
    return { ...ended({ kind: "runtime", code: "turn_poisoned", message }), poisoned: true };
  }
  const { name, agent } = session.agent;
  if (name !== undefined && agent === undefined) {
    const gone = session.services.agents.missing(name, session.id);
    // Its plugins are not known any more: no hook sees it.
    return { ...ended(issueOf("runtime", "agent_unknown", gone)), poisoned: true };
  }
  try {
    return await modelsOf(session, start, asked);
  } catch (error) {
    if (error instanceof TroupeError && error.code !== "model_unknown") throw error;
    return ended(issueOf("runtime", "model_unknown", error));
  }
}

/** The model the turn was asked with, or where it is gone the one it would be asked with now. */
async function modelsOf(session: TurnSession, { extras }: TurnStart, asked: AskedTurn | undefined) {
  const { settings } = session;
  if (asked === undefined) return settings.modelsFor(extras);
  const { model, calling } = asked;
  try {
    return await settings.modelsFor({ ...extras, ...(model !== undefined && { model }) }, calling);
  } catch (error) {
    if (error instanceof TroupeError && error.code !== "model_unknown") throw error;
    return settings.modelsFor(extras);
  }
}

async function runInFrames(session: TurnSession, request: TurnRequest, beginning: TurnBeginning): Promise<TurnResult> {
  const first = await runOneTurn(session, request, beginning);
  return first.outcome.type === "frame_switch" ? goOnInFrames(session, request, beginning, first) : first;
}

/** Does what a turn left to be done in another frame, and what that leaves, until a turn stays where it is. */
async function goOnInFrames(
  session: TurnSession,
  request: TurnRequest,
  { model, fallbacks, name }: Pick<TurnBeginning, "model" | "fallbacks" | "name">,
  first: TurnResult,
): Promise<TurnResult> {
  let result = first;
  while (result.outcome.type === "frame_switch" && !session.life.isStale) {
    // The task waits with the session: should this process end here, the next turn begins with it all the same.
    const [task] = session.inputs.takeThese([frameTaskOf(result.turnId)]);
    if (task === undefined) break;
    const before = resultsUpTo(result);
    const next = { ...request, input: task.text, inputIds: [task.id] };
    const tooOften = before.length === MAX_FRAME_SWITCHES;
    const how = tooOften ? { parts: [], stopped: TOO_OFTEN } : { parts: textParts(task.text) };
    try {
      result = await runOneTurn(session, next, { model, fallbacks, name, before, ...how });
    } catch (error) {
      // What is stored is stored: that the next frame's turn failed is told with the last one that did not.
      const { code, message } = asTroupeError(error, "turn_failed");
      return { ...result, issues: [...result.issues, { kind: "runtime", code, message }] };
    }
  }
  return result;
}

/** The turns before a turn, and the turn. */
function resultsUpTo({ before = [], ...result }: TurnResult): readonly TurnResult[] {
  return [...before, result];
}

const TOO_OFTEN: NonNullable<TurnConfig["stopped"]> = {
  reason: "runtime_error",
  issue: {
    kind: "runtime",
    code: "frame_switch_limit",
    message: `The turn moved to another frame ${MAX_FRAME_SWITCHES} times.`,
  },
};

/** Runs one turn: asks the machine what to do, does it, tells the machine what came of it. */
async function runOneTurn(session: TurnSession, request: TurnRequest, beginning: TurnBeginning): Promise<TurnResult> {
  // What the model is not given is not read; what it is, its transforms say.
  const { asked } = beginning;
  const read =
    asked === undefined ? session.past.ahead(session.hooks, session.settings.config) : historyAsked(session, asked);
  const history = read instanceof Promise ? await read : read;
  const turn = new Turn(session, request, { beginning, history });
  const entered = enter(turn);
  if (entered !== undefined) await entered;
  session.life.begin(turn);
  try {
    const result = await perform(turn);
    tellStopped(turn, result);
    return beginning.before === undefined ? result : { ...result, before: beginning.before };
  } catch (error) {
    session.inputs.turnFailed();
    session.hooks.failures.turnRefused();
    // What was refused is not taken up again after a crash; what the runtime's closing ends is left as its journal has it.
    const goesOnLater = endsHere(request.signal);
    request.onLeft?.(goesOnLater ? undefined : error);
    if (isSuspended(request.signal)) {
      session.life.suspend();
      // Nothing of it was written down yet: it does not go on with the next runtime.
      if (turn.journal.held) throw sessionClosed(session.id);
      await turn.journal.left();
    } else if (goesOnLater) session.life.giveUp(request.signal.reason);
    else if (!session.life.isStale) {
      session.stored.usage.release();
      session.waitingCalls.settle();
      await session.stored.clearJournal();
      // It is not stored, and what it asked for is paid all the same.
      await session.spending.tenant?.countRefused(turn.state.spent).catch(ignore);
    }
    throw error;
  } finally {
    session.blobs.release(turn.attached);
    turn.journal.ended();
    session.completions.turnEnded();
    session.waitingCalls.leave();
    session.life.end();
  }
}

/** From here on the turn can be stopped. A promise only where something is to be written down before it goes on. */
function enter(turn: Turn): Promise<unknown> | undefined {
  const { beginning, request } = turn;
  // A turn that had its worker killed before may do so again: it is counted before it can.
  if (beginning.unfinished !== undefined) {
    request.stop?.begins(turn);
    return resumed(turn, beginning.unfinished);
  }
  // What a hook replaces is not written down before it has.
  if (turn.replacesInput) turn.journal.hold();
  const begun = turn.replacesInput ? undefined : begin(turn);
  request.stop?.begins(turn);
  return request.again === true ? begun : undefined;
}

async function perform(turn: Turn): Promise<TurnResult> {
  while (turn.effects.length > 0) {
    let answer: TurnEvent | undefined;
    for (const effect of turn.effects) {
      if (effect.type === "emit") turn.request.emit(effect.activity);
      else {
        const performed = performEffect(turn, effect);
        answer = performed instanceof Promise ? await performed : performed;
      }
    }
    if (answer === undefined) break;
    turn.step(answer);
  }
  return resultOf(turn.state);
}

/** Writes down that it is taken up again, alone if it may be what kills its worker. */
async function resumed(
  { journal, request, session, facts }: Turn,
  { resumed: times, strikes }: UnfinishedTurn,
): Promise<void> {
  const { signal } = request;
  const past = strikes === 0 ? ignore : await session.services.suspects.alone(signal);
  if (endsHere(signal)) throw signal.reason;
  await journal.resume(times, past).catch((error: unknown) => {
    past();
    throw error;
  });
  const { turnId } = facts;
  session.services.events?.emit({ type: "turn_resumed", session: session.id, turn: turnId, times, replaying: true });
}

/** Tells of a turn that is stored and did not finish. Whoever cancelled one knows. */
function tellStopped({ session, facts }: Turn, { outcome }: TurnResult): void {
  if (outcome.type !== "stopped" || outcome.reason === "cancelled") return;
  const { reason, code, message } = outcome;
  session.services.events?.emit({
    type: "turn_stopped",
    session: session.id,
    turn: facts.turnId,
    reason,
    code,
    error: { name: TroupeError.name, message, code },
  });
}
