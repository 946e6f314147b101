import { indexOfTurn, TroupeError, type TurnResult, turnUnknown } from "../../kernel/index.js";
import type { HostSessionView, TurnInProgress } from "../calls/index.js";
import { leftBehind } from "../journal/index.js";
import { type Session, viewOf } from "../state/index.js";
import type { Observations } from "./observations.js";

/** A session as its host sees it, the turn that runs with what it has shown. */
export async function hostViewOf(
  session: Session,
  shown: ReturnType<Observations["running"]>,
): Promise<HostSessionView> {
  return { ...(await viewOf(session)), running: runningTurn(session, shown) };
}

function runningTurn({ id, life, stored }: Session, shown: ReturnType<Observations["running"]>): TurnInProgress | null {
  const turn = life.turn ?? life.unfinished;
  if (turn === undefined) return null;
  const { turnId } = turn;
  const turnIndex = indexOfTurn(turnId) ?? stored.turnIndex;
  // Taken up or about to be, it is as far as its journal has it.
  const left = life.unfinished === undefined ? life.turn?.left : leftBehind(id, life.unfinished);
  const step = Math.max(life.turn?.state.step ?? 0, left?.calls ?? 0);
  if (shown !== undefined && shown.turnId === turnId) return { turnIndex, ...shown, step };
  // It was not told of yet: it is about to be taken up.
  return { turnId, turnIndex, since: life.unfinished?.since ?? 0, step, text: "", pending: [] };
}

/**
 * What a turn came to: of the one that runs, when it is over. A session remembers the last turns that were named by a key;
 * of the others the worker knows the last ones that ended on it.
 */
export async function turnResultOf(
  { id: sessionId, life, stored, turnKeys }: Session,
  turnId: string,
  observations: Pick<Observations, "resultOf" | "running" | "untilOver">,
): Promise<TurnResult> {
  const ended = observations.resultOf(sessionId, turnId);
  if (ended !== undefined) return ended;
  const running = observations.running(sessionId) ?? life.unfinished;
  if (running?.turnId === turnId) return observations.untilOver(sessionId, turnId);
  const kept = await turnKeys.byTurn(turnId);
  if (kept !== undefined) return kept;
  const turnIndex = indexOfTurn(turnId);
  const details = { sessionId, turnId };
  if (turnIndex === undefined || turnIndex > stored.turnIndex)
    throw turnUnknown(`Session ${sessionId} has no turn ${turnId}.`, details);
  const message = `Turn ${turnId} of session ${sessionId} is stored, but its result is not kept any more. Read what was said in it with session.messages(), and give turns a key whose results are asked for later.`;
  throw new TroupeError("turn_result_forgotten", message, { details: { ...details, turnIndex } });
}
