import { type ModelEvent, type ModelRequest, type ModelResponse, ResponseBuilder } from "../kernel/index.js";
import { streamCut } from "./errors.js";
import type { Model } from "./model.js";
import { type RetryOptions, streamWithRetry } from "./retry.js";

/** A model request of which only what is asked must be given: by default the first step, no history, no tools. */
export type CompletionRequest = Omit<ModelRequest, OptionalFields> & Partial<Pick<ModelRequest, OptionalFields>>;
type OptionalFields = "step" | "history" | "tools";

/**
 * One whole completion. Repeated where `streamWithRetry` repeats, and also when it broke off in the middle: of a
 * completion nobody sees the half.
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
  for await (const event of streamWithRetry(unbroken(model), whole, options)) response.add(event);
  return response.build();
}

/** The same model, silent until it has finished. */
function unbroken(model: Model): Model {
  return {
    id: model.id,
    async *stream(request, signal, onReplayDropped) {
      for (const event of await finishedEvents(model.stream(request, signal, onReplayDropped))) yield event;
    },
  };
}

async function finishedEvents(stream: AsyncIterable<ModelEvent>): Promise<ModelEvent[]> {
  const events: ModelEvent[] = [];
  for await (const event of stream) {
    events.push(event);
    if (event.type === "finish") return events;
  }
  throw streamCut();
}
