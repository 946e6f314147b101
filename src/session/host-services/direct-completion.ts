import { ignore, untilAborted } from "../../async/index.js";
import {
  aborted,
  asTroupeError,
  budgetSpent,
  callSettings,
  type ModelRequest,
  type ModelResponse,
  retryPolicyOf,
  TroupeError,
} from "../../kernel/index.js";
import { completeOnce } from "../../model/index.js";
import type { SessionLife, SessionServices, SessionSettings, Spending } from "../state/index.js";

/** A session that asks its model something beside its turns, and pays for it. */
export interface CompletingSession {
  readonly id: string;
  readonly settings: Pick<SessionSettings, "callLayers" | "modelsFor">;
  readonly spending: Pick<Spending, "check" | "isLimited" | "record" | "tenant">;
  readonly services: Pick<SessionServices, "clock" | "instances" | "relay">;
  readonly life: Pick<SessionLife, "turn">;
}

/** What is asked. Without `history` and `tools` it has none. */
export type BesideRequest = Pick<ModelRequest, "system" | "turn"> &
  Partial<Pick<ModelRequest, "history" | "tools" | "cache" | "attachments">> &
  Required<Pick<ModelRequest, "direct">>;

/**
 * One model call beside the turns, asked as the session's own calls are and counted under its `source`. Throws
 * `budget_spent` before it is made, `direct_completion_failed` when it is not answered.
 */
export async function completeBeside(
  session: CompletingSession,
  request: BesideRequest,
  signal: AbortSignal,
): Promise<ModelResponse> {
  const { settings, services, spending, life } = session;
  spending.check();
  const { callLayers } = settings;
  const { model, fallbacks } = await settings.modelsFor();
  const { modelOptions: options } = callSettings(callLayers);
  const { source } = request.direct;
  let answering = model;
  const answered = async () => {
    const response = await completeOnce(
      model,
      { sessionId: session.id, turnId: life.turn?.turnId ?? "", ...request, ...(options !== undefined && { options }) },
      {
        signal,
        clock: services.clock,
        retry: retryPolicyOf(callLayers, model.modelRetry),
        fallbacks: fallbacks.map((next) => ({ model: next, retry: retryPolicyOf(callLayers, next.modelRetry) })),
        onFallback: ({ to }) => {
          answering = to;
        },
      },
    ).catch((error: unknown) => {
      if (signal.aborted) throw aborted(signal);
      const cause = asTroupeError(error, "model_failed");
      if (cause.code === "model_auth_failed") services.instances.refused(answering);
      throw notCompleted("did not answer", cause);
    });
    return { response, entry: { source, model: answering.id, usage: response.usage } };
  };
  const { tenant } = spending;
  const complete = async () => {
    const { response, entry } = await (tenant === undefined ? answered() : tenant.completed(signal, answered));
    await spending.record(entry);
    return response;
  };
  return spending.isLimited ? paidByPayers(session, signal, complete) : complete();
}

/** A completion in a turn that other sessions pay for: behind their word that there is something left. */
async function paidByPayers<T>(
  { id: sessionId, services }: CompletingSession,
  signal: AbortSignal,
  complete: () => Promise<T>,
): Promise<T> {
  // No session's id has this character.
  const asked = { sessionId, call: `${sessionId}\u0000${services.clock.uuid()}` };
  try {
    const answer = await untilAborted(services.relay("payersAdmit", { ...asked, waits: false }), signal);
    if (answer.kind === "spent") throw budgetSpent(answer.why);
    return await complete();
  } finally {
    void services.relay("payersLeft", asked).catch(ignore);
  }
}

export function notCompleted(how: string, cause?: TroupeError): TroupeError {
  const message = `The model ${how}${cause === undefined ? "." : `: ${cause.message}`}`;
  return new TroupeError("direct_completion_failed", message, { cause, retryable: cause?.retryable ?? false });
}
