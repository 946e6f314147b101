import {
  indexOfTurn,
  TroupeError,
  type TurnResult,
  turnUnknown,
  WAITING_CALLS,
  type PendingCall as WaitingCall,
} from "../../kernel/index.js";
import { decode } from "../../wire/index.js";
import type { HostSessionView, PendingCall, TurnInProgress } from "../calls/index.js";
import { leftBehind } from "../journal/index.js";
import { type RunningTurn, type Session, viewOf } from "../state/index.js";
import type { Observations } from "./observations.js";

/** A session as its host sees it, the turn that runs with what it has shown. */
export async function hostViewOf(
  session: Session,
  shown: ReturnType<Observations["running"]>,
): Promise<HostSessionView> {
  return { ...(await viewOf(session)), running: await runningTurn(session, shown) };
}

async function runningTurn(
  session: Session,
  shown: ReturnType<Observations["running"]>,
): Promise<TurnInProgress | null> {
  const { id, life, stored, waitingCalls } = session;
  const turn = life.turn ?? life.unfinished;
  if (turn === undefined) return null;
  const { turnId } = turn;
  const turnIndex = indexOfTurn(turnId) ?? stored.turnIndex;
  const input = life.unfinished?.start.input ?? inputOf(life.turn);
  // Until it was told of, it is about to be taken up.
  const told = shown?.turnId === turnId ? shown : { turnId, since: life.unfinished?.since ?? 0, text: "" };
  const step = life.turn?.state.step ?? 0;
  const left = life.unfinished === undefined ? life.turn?.left : leftBehind(id, life.unfinished);
  const waiting = waitingCalls.all.map(inView);
  if (left === undefined) return { ...told, turnIndex, input, step, pending: waiting };
  // Taken up or about to be, it is as far as its journal has it.
  const behind = step < left.calls ? { step: left.calls, text: left.text } : { step };
  const pending = [...waiting, ...(await waitingSince(session, waiting))];
  return { ...told, turnIndex, input, ...behind, pending };
}

const MOST_CALLS = 1_000;

/** Calls that wait since before the turn was taken up, and have not come to wait again. */
async function waitingSince({ id, services }: Session, again: readonly PendingCall[]): Promise<readonly PendingCall[]> {
  const rows = await services.store.rows({ table: WAITING_CALLS, session: id, limit: MOST_CALLS });
  const all = rows.map(({ value }) => inView(decode<WaitingCall>(value)));
  return all.filter((call) => !again.some(({ key }) => key === call.key));
}

/** As its activity told of it; its session and turn are those of the view. */
function inView({ sessionId: _session, tenant: _tenant, turnId: _turn, since: at, ...call }: WaitingCall): PendingCall {
  return { ...call, at };
}

/** What hooks may still replace is told to nobody. */
function inputOf(turn: RunningTurn | undefined): string {
  return turn === undefined || (turn.replacesInput && turn.state.phase === "before_turn") ? "" : turn.input;
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
