import type { CodeTable } from "./entry.js";

/** What a model or its provider fails with. */
export const MODELS = {
  model_auth_failed: {
    cause: "The provider refused the API key (401, 403), or there is none.",
    cure: "Set the key where the model's module reads it. `details.status` has the answer.",
  },
  model_rate_limited: {
    retryable: true,
    cause: "The provider answered 429.",
    cure: "Wait (`details.retryAfterMs`), or ask for a higher limit.",
  },
  model_server_error: {
    retryable: true,
    cause: "The provider answered with a status from 500.",
    cure: "Try again; look at the provider's status page.",
  },
  model_request_invalid: {
    retryable: "sometimes",
    cause: "The provider refused the request (another status from 400).",
    cure: "Read its answer in the message: mostly an unknown model name or an option it does not have.",
  },
  context_overflow: {
    cause: "The conversation is longer than the model's context.",
    cure: "Set `compaction`, so that the conversation is summed up by itself; use `session.compact()`, or a model with a larger context.",
  },
  compaction_failed: {
    cause: "The conversation could not be summed up: the model gave no summary, or could not be asked.",
    cure: "See the message. The turn went on with the conversation as it was; it is tried again in the next turn.",
  },
  model_unreachable: {
    retryable: true,
    cause: "The provider could not be reached.",
    cure: "Check the network, the base URL and a proxy.",
  },
  model_stream_cut: {
    retryable: true,
    cause: "The stream ended before the answer did.",
    cure: "Try again.",
  },
  model_stream_malformed: {
    retryable: true,
    cause: "The stream holds what no model of this protocol answers.",
    cure: "Try again; if it stays, mend the model's module or use the provider package that fits the AI SDK's version.",
  },
  model_failed: {
    retryable: "sometimes",
    cause: "The model threw something that is none of the above.",
    cure: "See the message and the `cause`.",
  },
  provider_error: {
    cause: "The provider ended its answer with an error of its own.",
    cure: "Try again; look at the provider's status page.",
  },
  output_limit: {
    cause: "The model's answer was cut off at the model's output limit.",
    cure: "Ask for less at a time, or raise the model's limit.",
  },
  content_filter: {
    cause: "The provider filtered the answer.",
    cure: "Ask in other words.",
  },
  empty_response: {
    cause: "The model answered with nothing.",
    cure: "Try again, or ask in other words.",
  },
  cache_prefix_broken: {
    cause:
      "An issue in development: a request does not begin with the one before, so the provider reads all of it anew.",
    cure: "Keep what the plugin or setting of the message says the same from turn to turn, or mark it `volatile`.",
  },
  direct_completion_failed: {
    retryable: "sometimes",
    cause: "A model did not answer a plugin's direct completion.",
    cure: "See the `cause`, which is the model's error.",
  },
} satisfies CodeTable;
