import { type ModelRequest, type ModelResponse, ResponseBuilder } from "../../kernel/index.js";
import type { Model } from "../boundary/index.js";
import { type RetryOptions, streamWithRetry } from "./retry.js";

/** A model request of which only what is asked must be given: by default the first step, no history, no tools. */
export type CompletionRequest = Omit<ModelRequest, OptionalFields> & Partial<Pick<ModelRequest, OptionalFields>>;
type OptionalFields = "step" | "history" | "tools";

/**
 * One whole completion, repeated where `streamWithRetry` repeats. One that broke off in the middle fails, as a turn's
 * answer does: what had come of it is paid for, and another attempt would be paid for again.
 *
 * @example
 * const { parts, usage } = await completeOnce(
 *   model,
 *   { sessionId, turnId, system: "Name the topic.", turn: messages, direct: { source: "titles" } },
 *   { signal, clock },
 * );
 */
export async function completeOnce(
  model: Model,
  request: CompletionRequest,
  options: RetryOptions,
): Promise<ModelResponse> {
  const whole: ModelRequest = { step: 0, history: [], tools: [], ...request };
  const response = new ResponseBuilder();
  for await (const event of streamWithRetry(model, whole, options)) response.add(event);
  return response.build();
}
