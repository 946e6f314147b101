import { ignore, onAbort, untilAborted } from "../../async/index.js";
import { type AttemptRecord, budgetSpent, OWN_SOURCE, TroupeError } from "../../kernel/index.js";
import type { Model } from "../../model/index.js";
import type { PayerAnswer, TenantAnswer } from "../calls/index.js";
import type { Turn } from "./turn.js";
import { untilPeople } from "./turn-deadline.js";

/** A call of the model, as far as it is to be paid. */
interface PaidCall {
  readonly turn: Turn;
  readonly attempts: readonly AttemptRecord[];
  readonly model: Model;
}

/**
 * Makes a call of the model that others pay, the sessions for which the turn runs and the session's tenant: behind their
 * word that there is something left. About a call that a turn finds in its journal nobody is asked.
 */
export function paidByOthers<T>(call: PaidCall, run: () => Promise<T>): Promise<T> {
  const { turn } = call;
  const paidRun = () => (turn.session.spending.tenant?.isUnlimited === false ? paidByTenant(call, run) : run());
  return turn.isLimited ? paidByPayers(turn, paidRun) : paidRun();
}

/** A budget of somebody else's is spent, and the turn is to end. */
export function isSpentElsewhere(error: unknown): error is TroupeError {
  return error instanceof TroupeError && error.code === "budget_spent";
}

async function paidByTenant<T>(call: PaidCall, run: () => Promise<T>): Promise<T> {
  const { session, state, request } = call.turn;
  const { tenant } = session.spending;
  const { signal } = request;
  await letIn(call.turn, {
    admit: async () => tenant?.admit(state.spent, signal),
    untilRaised: async ({ end }) => tenant?.untilChanged(end, signal),
  });
  try {
    return await run();
  } finally {
    const costs = call.attempts.flatMap(({ usage, model = call.model.id }) =>
      usage === undefined ? [] : [{ source: OWN_SOURCE, model, usage }],
    );
    tenant?.paid(state.spent, costs);
  }
}

/** The main thread counts the call as ended when it is told what it cost, with the turn's activities. */
async function paidByPayers<T>(turn: Turn, run: () => Promise<T>): Promise<T> {
  const { services, id: sessionId } = turn.session;
  const { signal } = turn.request;
  const asked = { sessionId, call: sessionId };
  const ask = async (waits: boolean): Promise<PayerAnswer> => {
    const letGo = onAbort(signal, () => void services.relay("payersLeft", asked).catch(ignore));
    try {
      return await untilAborted(services.relay("payersAdmit", { ...asked, waits }), signal);
    } finally {
      letGo();
    }
  };
  await letIn(turn, { admit: () => ask(false), untilRaised: () => ask(true) });
  return run();
}

interface Asking<A extends TenantAnswer | PayerAnswer | undefined> {
  readonly admit: () => Promise<A>;
  readonly untilRaised: (spent: Extract<A, { readonly kind: "spent" }>) => Promise<unknown>;
}

/** A spent budget ends the turn, or keeps it waiting for another one or for the next period. */
async function letIn<A extends TenantAnswer | PayerAnswer | undefined>(turn: Turn, asking: Asking<A>): Promise<void> {
  const { emit } = turn.request;
  let isPaused = false;
  for (;;) {
    const answer = await asking.admit();
    if (!isSpent(answer)) {
      if (isPaused) emit({ type: "turn_resumed" });
      return;
    }
    const { why, whenSpent } = answer;
    if (whenSpent === "stop") throw budgetSpent(why);
    if (!isPaused) emit({ type: "turn_paused", code: "budget_spent", message: why });
    isPaused = true;
    await untilPeople(turn, asking.untilRaised(answer).then(ignore));
  }
}

function isSpent<A extends TenantAnswer | PayerAnswer | undefined>(
  answer: A,
): answer is Extract<A, { readonly kind: "spent" }> {
  return answer?.kind === "spent";
}
