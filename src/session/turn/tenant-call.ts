import { type AttemptRecord, budgetSpent, OWN_SOURCE, TroupeError } from "../../kernel/index.js";
import type { Model } from "../../model/index.js";
import type { Turn } from "./turn.js";
import { untilPeople } from "./turn-deadline.js";

/** A call of the model, as far as it is to be paid. */
interface PaidCall {
  readonly turn: Turn;
  readonly attempts: readonly AttemptRecord[];
  readonly model: Model;
}

/**
 * Makes a call of the model that the session's tenant pays: behind the word that there is something left. A call that a
 * turn finds in its journal is not asked about.
 */
export function paidByTenant<T>(call: PaidCall, run: () => Promise<T>): Promise<T> {
  return call.turn.session.spending.tenant?.isUnlimited === false ? paid(call, run) : run();
}

/** The tenant's budget is spent, and the turn is to end. */
export function isTenantSpent(error: unknown): error is TroupeError {
  return error instanceof TroupeError && error.code === "budget_spent";
}

async function paid<T>(call: PaidCall, run: () => Promise<T>): Promise<T> {
  const { session, state } = call.turn;
  await letIn(call);
  try {
    return await run();
  } finally {
    const costs = call.attempts.flatMap(({ usage, model = call.model.id }) =>
      usage === undefined ? [] : [{ source: OWN_SOURCE, model, usage }],
    );
    session.spending.tenant?.paid(state.spent, costs);
  }
}

/** A spent budget ends the turn, or keeps it waiting for another one or for the next period. */
async function letIn({ turn }: PaidCall): Promise<void> {
  const { session, request, state } = turn;
  const { emit, signal } = request;
  let isPaused = false;
  for (;;) {
    const answer = await session.spending.tenant?.admit(state.spent, signal);
    if (answer?.kind !== "spent") {
      if (isPaused) emit({ type: "turn_resumed" });
      return;
    }
    const { why, whenSpent, end } = answer;
    if (whenSpent === "stop") throw budgetSpent(why);
    if (!isPaused) emit({ type: "turn_paused", code: "budget_spent", message: why });
    isPaused = true;
    await untilPeople(turn, session.spending.tenant?.untilChanged(end, signal) ?? Promise.resolve());
  }
}
