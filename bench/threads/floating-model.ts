import type { ModelEvent } from "troupe/model";

const NO_USAGE = { inputTokens: 0, outputTokens: 0, cacheReadTokens: 0, cacheWriteTokens: 0, reasoningTokens: 0 };

/** A model that answers, and leaves a rejection behind that nobody waits for. */
export default {
  id: "floating",
  async *stream(): AsyncGenerator<ModelEvent> {
    void Promise.reject(new Error("A rejection nobody waits for."));
    yield { type: "text_delta", blockId: "b", text: "done" };
    yield { type: "finish", reason: "stop", usage: NO_USAGE };
  },
};
