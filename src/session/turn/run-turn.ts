import { ignore } from "../../async/index.js";
import {
  asTroupeError,
  frameTaskOf,
  type Part,
  resultOf,
  TroupeError,
  type TurnConfig,
  type TurnEvent,
  type TurnResult,
} from "../../kernel/index.js";
import type { TurnExtras } from "../calls/index.js";
import { endsHere, isSuspended, MAX_IDLE, MAX_STRIKES, type TurnStart, type UnfinishedTurn } from "../journal/index.js";
import { attachedTo, storedParts, turnKeyOf } from "../stored/index.js";
import { performEffect } from "./effects.js";
import { type Admitted, Turn, type TurnBeginning } from "./turn.js";
import { issueOf, type TurnRequest, type TurnSession } from "./turn-session.js";

/** A turn that was asked for with a text and nothing else. */
export const NO_EXTRAS: TurnExtras = Object.freeze({});

/** How often what a host asked for may move to another frame. */
const MAX_FRAME_SWITCHES = 16;

/**
 * Runs what a host asked for: one turn, or several when a turn leaves its frame with a task for the next. The last one's
 * result is the answer, with those before it. A turn that was asked for by a key before is answered and not run.
 */
export async function runTurn(session: TurnSession, request: TurnRequest): Promise<TurnResult> {
  const admitted = await admit(session, request.input, request.extras);
  if (request.extras.items === undefined) return runAdmitted(session, request, admitted);
  try {
    return await runAdmitted(session, request, admitted);
  } finally {
    // Of a turn that was refused, or was there before, nothing is to be stored.
    session.blobs.release(attachedTo(admitted.parts));
  }
}

async function runAdmitted(session: TurnSession, request: TurnRequest, admitted: Admitted): Promise<TurnResult> {
  const { extras, inputIds } = request;
  // What a crash kept a named turn from doing in its next frame is still that turn.
  const left = inputIds === undefined ? undefined : await session.turnKeys.leftOff(inputIds);
  if (left !== undefined) {
    const { key, content, result } = left;
    return runInFrames(session, request, { ...admitted, name: { key, content }, before: resultsUpTo(result) });
  }
  const name = extras.key === undefined ? undefined : turnKeyOf(extras.key, admitted);
  const known = name === undefined ? undefined : await session.turnKeys.find(name);
  if (known === undefined) return runInFrames(session, request, { ...admitted, name });
  return goOnInFrames(session, request, { ...admitted, name }, known);
}

/** Checks what a turn was asked for with. Throws for what only a program gets wrong; what a user sent is recorded. */
async function admit(session: TurnSession, input: string, extras: TurnExtras): Promise<Admitted> {
  const model = session.settings.modelNamed(extras.model);
  for (const pluginId of Object.keys(extras.pluginInputs ?? {})) session.hooks.of(pluginId);
  if (extras.extension !== undefined) await session.protocol.validateTurnExtension(extras.extension);
  if (extras.invalid !== undefined) return { model, ...unusable(extras.invalid) };
  if (extras.items === undefined) return { model, parts: extras.parts ?? textParts(input) };
  try {
    return { model, parts: await storedParts(session.blobs, extras.items) };
  } catch (error) {
    if (error instanceof TroupeError && error.code === "invalid_turn_input")
      return { model, ...unusable(error.message) };
    throw error;
  }
}

function unusable(message: string): Omit<Admitted, "model"> {
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
  { emit, signal }: Pick<TurnRequest, "emit" | "signal">,
): Promise<TurnResult> {
  const { input, parts, extras = NO_EXTRAS, blobs, inputIds, call, stopped, name, before } = unfinished.start;
  const kept = blobs.map((bytes) => session.blobs.keep(bytes).hash);
  session.inputs.takeThese(inputIds);
  // The keys must be known when it is stored under one.
  if (name !== undefined) await session.turnKeys.find(name);
  const request = { input, emit, signal, extras, inputIds, ...(call !== undefined && { call }) };
  try {
    return await runInFrames(session, request, {
      parts,
      ...(stopped !== undefined && { stopped }),
      ...modelOrEnd(session, unfinished),
      name,
      ...(before !== undefined && { before }),
      unfinished,
    });
  } finally {
    session.blobs.release(kept);
  }
}

/** A turn whose worker died with it again and again is what killed it, and one whose model is gone cannot go on. */
function modelOrEnd(
  session: TurnSession,
  { start, strikes, idle }: UnfinishedTurn,
): Pick<TurnBeginning, "model" | "stopped" | "poisoned"> {
  const ended = (issue: NonNullable<TurnConfig["stopped"]>["issue"]) => ({
    model: session.settings.modelNamed(""),
    stopped: { reason: "runtime_error" as const, issue },
  });
  if (strikes >= MAX_STRIKES || idle >= MAX_IDLE) {
    const message = `The turn's worker died with it ${idle + 1} times.`;
    return { ...ended({ kind: "runtime", code: "turn_poisoned", message }), poisoned: true };
  }
  try {
    return { model: session.settings.modelNamed(start.extras.model) };
  } catch (error) {
    return ended(issueOf("runtime", "model_unknown", error));
  }
}

async function runInFrames(session: TurnSession, request: TurnRequest, beginning: TurnBeginning): Promise<TurnResult> {
  return goOnInFrames(session, request, beginning, await runOneTurn(session, request, beginning));
}

/** Does what a turn left to be done in another frame, and what that leaves, until a turn stays where it is. */
async function goOnInFrames(
  session: TurnSession,
  request: TurnRequest,
  { model, name }: Pick<TurnBeginning, "model" | "name">,
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
      result = await runOneTurn(session, next, { model, name, before, ...how });
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
  const turn = new Turn(session, request, { beginning, history: await session.past.ahead(session.hooks) });
  // A turn that had its worker killed before may do so again: it is counted before it can.
  if (beginning.unfinished !== undefined) await resumed(turn, beginning.unfinished);
  else {
    const begun = begin(turn);
    if (request.again === true) await begun;
  }
  session.life.begin(turn);
  try {
    const result = await perform(turn);
    return beginning.before === undefined ? result : { ...result, before: beginning.before };
  } catch (error) {
    session.inputs.turnFailed();
    // What was refused is not taken up again after a crash; what the runtime's closing ends is left as its journal has it.
    if (isSuspended(request.signal)) {
      session.life.suspend();
      await turn.journal.left();
    } else if (endsHere(request.signal)) session.life.giveUp(request.signal.reason);
    else if (!session.life.isStale) {
      session.stored.usage.release();
      await session.stored.clearJournal();
    }
    throw error;
  } finally {
    turn.journal.ended();
    session.life.end();
  }
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

/** Writes down what is begun, so that it can be begun again. */
function begin({ journal, request, session, beginning }: Turn): Promise<unknown> | undefined {
  const written = journal.begin((): TurnStart => {
    const { input, extras, call, inputIds = [] } = request;
    const { parts, stopped, name, before } = beginning;
    const { blobs } = session;
    return {
      call,
      input,
      parts,
      extras: plainExtras(extras),
      blobs: blobs.encode().map(({ bytes }) => bytes),
      inputIds,
      stopped,
      ...(name && { name }),
      ...(before && { before }),
    };
  });
  // What is recorded next fails for the same reason, and is waited for.
  written?.catch(ignore);
  return written;
}

/** Without what the journal keeps beside them: items are parts by then. */
function plainExtras({ items: _items, parts: _parts, ...extras }: TurnExtras): TurnExtras {
  return extras;
}

/** Writes down that it is taken up again, alone if it may be what kills its worker. */
async function resumed(
  { journal, request, session }: Turn,
  { resumed: times, strikes }: UnfinishedTurn,
): Promise<void> {
  const { signal } = request;
  const past = strikes === 0 ? ignore : await session.services.suspects.alone(signal);
  if (endsHere(signal)) throw signal.reason;
  await journal.resume(times, past).catch((error: unknown) => {
    past();
    throw error;
  });
}
