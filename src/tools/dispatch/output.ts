import {
  type Json,
  type JsonObject,
  type ModelResponse,
  messageOf,
  type ProtocolStep,
  type RequestedOutput,
} from "../../kernel/index.js";
import { isCostlySchema, schemaIssues } from "../../plugin/index.js";
import type { ArgumentChecks, ArgumentsToCheck } from "./dispatch.js";

/** The value of an answer in the form that was asked for, or a sentence the model can act on. */
export type ReadOutput = { readonly value: Json } | { readonly misfit: string };

/**
 * Reads an answer as JSON: all of its text, or its last text that is JSON. Models like to put JSON into a code block.
 *
 * @example
 * valueIn({ parts: [{ type: "text", text: '{"celsius":4}' }] }); // { value: { celsius: 4 } }
 */
export function valueIn({ parts }: Pick<ModelResponse, "parts">): ReadOutput {
  const texts = parts.flatMap((part) => (part.type === "text" ? [part.text] : []));
  for (const text of [texts.join(""), ...texts.reverse()]) {
    try {
      return { value: JSON.parse(CODE_BLOCK.exec(text)?.[1] ?? text) as Json };
    } catch {
      // The next one may be it.
    }
  }
  return { misfit: texts.length === 0 ? "The answer has no text." : "The answer is not JSON." };
}

const CODE_BLOCK = /^\s*```(?:json)?\s*\n([\s\S]*?)\n\s*```\s*$/;
const MAX_ISSUES = 5;

/** Where a value is checked: here, or where somebody minds the time. */
export type OutputChecks = Pick<ArgumentsToCheck, "sessionId" | "signal"> & { readonly checks: ArgumentChecks };

/**
 * What a protocol made of an answer, with the value it is when it is the end: what the protocol says, or what its text says
 * as JSON. `misfit`: that does not fit, in words for the model.
 */
export async function inForm(
  { response, next }: { readonly response: ModelResponse; readonly next: ProtocolStep },
  { schema }: RequestedOutput,
  by: OutputChecks,
): Promise<{ readonly next: ProtocolStep; readonly misfit?: string }> {
  if (next.kind !== "finish") return { next };
  const found = next.value === undefined ? valueIn(response) : { value: next.value };
  const misfit = "misfit" in found ? found.misfit : await misfitOf(found.value, schema, by);
  if (misfit !== undefined || "misfit" in found) return { next, ...(misfit !== undefined && { misfit }) };
  return { next: { ...next, value: found.value } };
}

async function misfitOf(
  value: Json,
  schema: JsonObject,
  { checks, ...asked }: OutputChecks,
): Promise<string | undefined> {
  if (!isCostlySchema(schema)) return outputMisfit(schema, value);
  try {
    const problem = await checks.check({ ...asked, toolName: "output", schema, args: value });
    return problem?.replace(/^The arguments do not fit the tool's/, "The answer does not fit its");
  } catch (error) {
    return `The answer cannot be checked by its schema: ${messageOf(error)}`;
  }
}

/** A sentence about a value that does not fit the schema that was asked for. */
export function outputMisfit(schema: JsonObject, value: unknown): string | undefined {
  const issues = schemaIssues(schema, value, "the output of a turn");
  if (issues.length === 0) return undefined;
  const rest = issues.length - MAX_ISSUES;
  const shown = issues.slice(0, MAX_ISSUES).join("; ");
  return `The answer does not fit its schema: ${shown}${rest > 0 ? `; and ${rest} more` : ""}.`;
}
