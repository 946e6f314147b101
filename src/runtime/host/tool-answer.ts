import { type Json, type ToolOutput, toolFailure } from "../../kernel/index.js";
import { contentMadeHere } from "../../plugin/index.js";

/** The answer of a tool call from outside. A value that `toolContent` made is a result of parts. */
export type ToolAnswer =
  | { readonly value: Json }
  | { readonly failure: { readonly code: string; readonly message: string } };

export function outputOf(answer: ToolAnswer): ToolOutput {
  return "value" in answer
    ? successOf(answer.value)
    : toolFailure("external", answer.failure.code, answer.failure.message);
}

function successOf(value: Json): ToolOutput {
  const made = contentMadeHere(value);
  return made === undefined
    ? { status: "success", value }
    : { status: "success", value: made.value, content: made.content };
}
