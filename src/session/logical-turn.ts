import { asTroupeError, frameTaskOf, type TurnConfig, type TurnResult } from "../kernel/index.js";
import { admit, textParts } from "./admission.js";
import type { Session } from "./session.js";
import type { TurnRequest } from "./turn-context.js";
import { turnKeyOf } from "./turn-keys.js";
import { runOneTurn } from "./turn-run.js";

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
  if (known !== undefined) return known;
  let result = await runOneTurn(session, request, { ...admitted, name });
  if (result.outcome.type !== "frame_switch") return result;
  const before: TurnResult[] = [];
  for (;;) {
    // The task waits with the session: should this process end here, the next turn begins with it all the same.
    const task = session.inputs.takeOne(frameTaskOf(result.turnId));
    if (task === undefined) return withBefore(result, before);
    before.push(result);
    const stopped = before.length === MAX_FRAME_SWITCHES ? TOO_OFTEN : undefined;
    const { model } = admitted;
    const parts = stopped === undefined ? textParts(task.text) : [];
    try {
      const next = { ...request, input: task.text };
      result = await runOneTurn(session, next, { model, parts, name, ...(stopped && { stopped }) });
    } catch (error) {
      return withBefore(unfinished(result, error), before.slice(0, -1));
    }
    if (result.outcome.type !== "frame_switch") return withBefore(result, before);
  }
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
function unfinished(result: TurnResult, error: unknown): TurnResult {
  const { code, message } = asTroupeError(error, "turn_failed");
  return { ...result, issues: [...result.issues, { kind: "runtime", code, message }] };
}
