import { scriptedModel } from "troupe";

/** What the model says, turn after turn; then from the start again. The pauses are there so that it looks like life. */
export const model = scriptedModel({
  turns: [
    [
      { reasoning: "The weather tool knows.", toolCalls: [{ tool: "weather", args: { city: "Oslo" } }], delayMs: 3 },
      { text: "It is {tool_result}.", delayMs: 2 },
    ],
    [{ text: "You asked: {input} Let me think about that, and answer at some length.", delayMs: 4, chunkDelayMs: 1 }],
    [
      { toolCalls: [{ tool: "primes", args: { below: 5_000 } }], delayMs: 2 },
      { text: "Counted: {tool_result}.", delayMs: 2 },
    ],
    [
      { toolCalls: [{ tool: "weather", args: { city: "Bergen" } }, { tool: "usage" }], delayMs: 3 },
      { text: "So far: {tool_result}.", delayMs: 1 },
    ],
    // More than the guard allows: the model hears why and settles for less.
    [
      { toolCalls: [{ tool: "primes", args: { below: 1_000_000 } }], delayMs: 2 },
      { toolCalls: [{ tool: "primes", args: { below: 1_000 } }], delayMs: 2 },
      { text: "Only this much was allowed: {tool_result}.", delayMs: 2 },
    ],
  ],
});
