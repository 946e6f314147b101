import { asTroupeError, frameTaskOf, type TurnConfig, type TurnResult } from "../kernel/index.js";
import { admit, NO_EXTRAS, textParts } from "./admission.js";
import { MAX_RESUMED, type UnfinishedTurn } from "./journal.js";
import type { Session } from "./session.js";
import { issueOf, type TurnRequest } from "./turn-context.js";
import { turnKeyOf } from "./turn-keys.js";
import { runOneTurn, type TurnBeginning } from "./turn-run.js";

/** How often what a host asked for may move to another frame. */
export const MAX_FRAME_SWITCHES = 16;

/**
 * Runs what a host asked for: one turn, or several when a turn leaves its frame with a task for the next. The last one's
 * result is the answer, with those before it. A turn that was asked for by a key before is answered and not run.
 */
export async function runTurn(session: Session, request: TurnRequest): Promise<TurnResult> {
  const { input, extras } = request;
  const admitted = await admit(session, input, extras);
  const name = extras.key === undefined ? undefined : turnKeyOf(extras.key, admitted);
  const known = name === undefined ? undefined : await session.turnNamed(name);
  return known ?? runInFrames(session, request, { ...admitted, name });
}

/** Takes a turn up again that a crash left behind: it runs as it did then, and does nothing twice that it had done. */
export async function resumeTurn(
  session: Session,
  unfinished: UnfinishedTurn,
  { emit, signal }: Pick<TurnRequest, "emit" | "signal">,
): Promise<TurnResult> {
  const { input, parts, extras = NO_EXTRAS, blobs, inputIds, call } = unfinished.start;
  for (const bytes of blobs) session.blobs.keep(bytes);
  session.inputs.takeThese(inputIds);
  const { stopped } = unfinished.start;
  const asked = { parts, ...(stopped !== undefined && { stopped }) };
  const name = extras.key === undefined ? undefined : turnKeyOf(extras.key, asked);
  if (name !== undefined) await session.turnNamed(name);
  const request = { input, emit, signal, extras, inputIds, ...(call !== undefined && { call }) };
  return runInFrames(session, request, { ...asked, ...modelOrEnd(session, unfinished), name, unfinished });
}

/** A turn whose worker died with it again and again is what killed it, and one whose model is gone cannot go on. */
function modelOrEnd(
  session: Session,
  { start, resumed }: UnfinishedTurn,
): Pick<TurnBeginning, "model"> & { stopped?: NonNullable<TurnConfig["stopped"]> } {
  const ended = (issue: NonNullable<TurnConfig["stopped"]>["issue"]) => ({
    model: session.modelNamed(""),
    stopped: { reason: "runtime_error" as const, issue },
  });
  if (resumed >= MAX_RESUMED) {
    const message = `The turn's worker died with it ${resumed + 1} times.`;
    return ended({ kind: "runtime", code: "turn_poisoned", message });
  }
  try {
    return { model: session.modelNamed(start.extras.model) };
  } catch (error) {
    return ended(issueOf("runtime", "model_unknown", error));
  }
}

type Beginning = Omit<TurnBeginning, "history">;

async function runInFrames(session: Session, request: TurnRequest, beginning: Beginning): Promise<TurnResult> {
  let result = await runOneTurn(session, request, beginning);
  const before: TurnResult[] = [];
  while (result.outcome.type === "frame_switch" && !session.stale) {
    // The task waits with the session: should this process end here, the next turn begins with it all the same.
    const task = session.inputs.takeOne(frameTaskOf(result.turnId));
    if (task === undefined) break;
    before.push(result);
    const { model, name } = beginning;
    const next = { ...request, input: task.text, inputIds: [task.id] };
    const tooOften = before.length === MAX_FRAME_SWITCHES;
    const how = tooOften ? { parts: [], stopped: TOO_OFTEN } : { parts: textParts(task.text) };
    try {
      result = await runOneTurn(session, next, { model, name, ...how });
    } catch (error) {
      return withBefore(unfinishedAfter(result, error), before.slice(0, -1));
    }
  }
  return withBefore(result, before);
}

const TOO_OFTEN: NonNullable<TurnConfig["stopped"]> = {
  reason: "runtime_error",
  issue: {
    kind: "runtime",
    code: "frame_switch_limit",
    message: `The turn moved to another frame ${MAX_FRAME_SWITCHES} times.`,
  },
};

function withBefore(result: TurnResult, before: readonly TurnResult[]): TurnResult {
  return before.length === 0 ? result : { ...result, before };
}

/** What is stored is stored: that the next frame's turn failed is told with the last one that did not. */
function unfinishedAfter(result: TurnResult, error: unknown): TurnResult {
  const { code, message } = asTroupeError(error, "turn_failed");
  return { ...result, issues: [...result.issues, { kind: "runtime", code, message }] };
}
