import { type Json, TroupeError } from "../../kernel/index.js";
import { type Parsed, parseEagerly, sealAnswer, type ToolContext, type ToolDefinition } from "../../plugin/index.js";
import { plainResult } from "./result.js";

/**
 * What every home does with a definition on the thread that holds it: parse the arguments with its Standard Schema,
 * execute, make sure that the result can travel. Synchronous when the schema and the tool are; throws or rejects with
 * `invalid_tool_args`, `tool_result_unserialisable`, or what the tool threw.
 *
 * @example
 * const home: ToolHome = { run: (tool, args, ctx) => runHere(definitions[tool.spec.name], args, ctx) };
 */
export function runHere(definition: ToolDefinition, args: Json, ctx: ToolContext): Json | Promise<Json> {
  const parsed = parseEagerly(definition.inputSchema, args);
  if (parsed instanceof Promise) return parsed.then((later) => execute(definition, later, ctx));
  return execute(definition, parsed, ctx);
}

function execute(definition: ToolDefinition, parsed: Parsed, ctx: ToolContext): Json | Promise<Json> {
  if (!parsed.ok) {
    throw new TroupeError(
      "invalid_tool_args",
      `The arguments do not fit the tool's schema: ${parsed.issues.join("; ")}.`,
      {
        details: { issues: parsed.issues },
      },
    );
  }
  const returned = definition.execute(parsed.value, ctx);
  return isThenable(returned) ? Promise.resolve(returned).then(answerOf) : answerOf(returned);
}

/** As it can travel, and without passing for something the tool did not mean. */
function answerOf(returned: unknown): Json {
  return sealAnswer(returned, plainResult(returned));
}

/** Promises of other libraries count too: a tool may return a query builder. */
export function isThenable(value: unknown): value is PromiseLike<unknown> {
  return typeof value === "object" && value !== null && typeof (value as { then?: unknown }).then === "function";
}
