import type { Message, ModelEvent, ModelRequest, Usage } from "../../kernel/index.js";

/** A token is about four bytes of text in most languages and models. Good enough for a budget, not for a bill. */
const BYTES_PER_TOKEN = 4;

type Finish = Extract<ModelEvent, { type: "finish" }>;

/** What an answer has said so far, in bytes of text. */
export function bytesSaid(event: ModelEvent): number {
  switch (event.type) {
    case "text_delta":
    case "text":
    case "reasoning_delta":
      return Buffer.byteLength(event.text);
    case "tool_call":
      return Buffer.byteLength(event.toolName) + Buffer.byteLength(event.argsText);
    default:
      return 0;
  }
}

/**
 * The usage of a provider that did not say it, by the length of what was asked and said: a budget that took it for
 * nothing would never end.
 *
 * @example
 * estimatedUsage(finish, request, 400).outputTokens; // 100, unless the provider said how many
 */
export function estimatedUsage({ usage, unsaid = [] }: Finish, request: ModelRequest, said: number): Usage {
  return {
    ...usage,
    ...(unsaid.includes("inputTokens") && { inputTokens: tokensOf(bytesAsked(request)) }),
    ...(unsaid.includes("outputTokens") && { outputTokens: tokensOf(said) }),
  };
}

function bytesAsked({ system, history, turn, tools }: ModelRequest): number {
  return Buffer.byteLength(system) + bytesOf(history) + bytesOf(turn) + Buffer.byteLength(JSON.stringify(tools));
}

function bytesOf(messages: readonly Message[]): number {
  return messages.reduce((sum, { parts }) => sum + Buffer.byteLength(JSON.stringify(parts)), 0);
}

function tokensOf(bytes: number): number {
  return Math.ceil(bytes / BYTES_PER_TOKEN);
}
