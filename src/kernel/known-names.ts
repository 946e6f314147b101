import { nearestName } from "./suggest.js";

/** The names of all fields of T: one that is forgotten, or that T does not have, is a type error. */
export type FieldsOf<T> = { readonly [K in T extends unknown ? keyof T : never]: true };

/** What a field is called elsewhere. */
const ELSEWHERE: Readonly<Record<string, string>> = {
  run: "execute",
  maxTokens: "maxOutputTokens",
  stop: "stopSequences",
  maxRetries: "maxAttempts",
  attempts: "maxAttempts",
  handler: "execute",
  parameters: "inputSchema",
  schema: "inputSchema",
  system: "instructions",
  systemPrompt: "instructions",
  max_tokens: "maxOutputTokens",
  maxCompletionTokens: "maxOutputTokens",
  needsApproval: "approval",
  timeoutMs: "deadlineMs",
  timeout: "deadlineMs",
  steps: "maxSteps",
  prompt: "input",
  message: "input",
  net: "network",
  logger: "log",
  storage: "store",
};

/**
 * What to say of a field nobody knows; undefined when all are known. A field that is undefined says nothing. `instead`:
 * what to do where somebody looks for something here that is elsewhere.
 *
 * @example
 * unknownField({ modle: "x" }, { model: true }, "createTroupe", "option");
 * // createTroupe has no option "modle". Did you mean "model"?
 */
export function unknownField(
  given: object,
  known: Readonly<Record<string, true>>,
  what: string,
  kind = "field",
  instead: Readonly<Record<string, string>> = {},
): string | undefined {
  for (const [name, value] of Object.entries(given)) {
    if (value === undefined || Object.hasOwn(known, name)) continue;
    if (Object.hasOwn(instead, name)) return `${what} has no ${kind} "${name}". ${instead[name]}`;
    return unknownName(name, Object.keys(known), what, kind);
  }
  return undefined;
}

/** What to say of a name that is none of those known: the one that was probably meant, or all of them. */
export function unknownName(name: string, known: readonly string[], what: string, kind: string): string {
  const elsewhere = Object.hasOwn(ELSEWHERE, name) ? (ELSEWHERE[name] as string) : "";
  const near = known.includes(elsewhere) ? elsewhere : nearestName(name, known);
  const hint = near === undefined ? `There are: ${known.join(", ")}.` : `Did you mean "${near}"?`;
  return `${what} has no ${kind} "${name}". ${hint}`;
}
