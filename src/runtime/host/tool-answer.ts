import { answerUnusable, isRecord, type Json, type ToolOutput, TroupeError, toolFailure } from "../../kernel/index.js";
import { contentMadeHere } from "../../plugin/index.js";
import { plainResult } from "../../tools/index.js";

/** The answer of a tool call from outside. A value that `toolContent` made is a result of parts. */
export type ToolAnswer =
  | { readonly value: Json }
  | { readonly failure: { readonly code: string; readonly message: string } };

/** The answer, checked: `answer_unusable` says what is wrong with it. */
export function outputOf(answer: ToolAnswer): ToolOutput {
  const given: unknown = answer;
  const { value, failure } = isRecord(given) ? given : NOTHING;
  if (failure === undefined ? !isRecord(given) || !("value" in given) : value !== undefined)
    throw answerUnusable("the result of a call is { value }, or { failure: { code, message } }");
  if (failure === undefined) return successOf(value);
  const { code, message } = isRecord(failure) ? failure : NOTHING;
  if (typeof code !== "string" || code === "" || typeof message !== "string")
    throw answerUnusable("the failure of a call is { code, message }, both texts");
  return toolFailure("external", code, message);
}

const NOTHING: Readonly<Record<string, unknown>> = {};

function successOf(given: unknown): ToolOutput {
  const made = contentMadeHere(given);
  if (made !== undefined) return { status: "success", value: made.value, content: made.content };
  return { status: "success", value: plainAnswer(given, "the value of a result") };
}

/** What was given as plain data; `answer_unusable` when it is none. */
export function plainAnswer(given: unknown, what: string): Json {
  try {
    return plainResult(given);
  } catch (cause) {
    throw cause instanceof TroupeError ? answerUnusable(`${what} must be plain data`) : cause;
  }
}
