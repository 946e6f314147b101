import type { Message, Part } from "../../../kernel/index.js";

/** A conversation as one text, for a model that is asked about it and not within it. */
export function transcriptOf(messages: readonly Message[]): string {
  return messages
    .map(({ role, parts }) => ({ role, said: parts.flatMap(wordsOf).join("\n") }))
    .filter(({ said }) => said !== "")
    .map(({ role, said }) => `${role}: ${said}`)
    .join("\n\n");
}

/** What it was thought before it was said is left out, and so is what only its provider understands. */
function wordsOf(part: Part): readonly string[] {
  switch (part.type) {
    case "text":
      return part.text === "" ? [] : [part.text];
    case "tool_call":
      return [`[calls ${part.toolName} with ${JSON.stringify(part.args)}]`];
    case "tool_result":
      return [`[${part.toolName}: ${part.text}]`];
    case "attachment":
      return [`[an attachment: ${part.mediaType}]`];
    default:
      return [];
  }
}
