import { TroupeError, type TurnResult } from "../../kernel/index.js";
import {
  type InferSchema,
  isCostlySchema,
  isStandardSchema,
  jsonSchemaOf,
  parseWith,
  type Schema,
} from "../../plugin/index.js";
import { outputMisfit } from "../../tools/index.js";

/** What a turn that was asked for with an `output` came to. */
export interface OutputResult<T = unknown> extends TurnResult {
  /** The answer, as the schema leaves it; undefined when the turn ended without one, as its `outcome` says. */
  readonly value: T | undefined;
}

/**
 * The result of a turn as its caller gets it. The schema's own `validate` has the last word, with its transformations:
 * what it refuses rejects with `output_invalid`, and the turn is stored all the same.
 */
export async function withValue<S extends Schema>(
  result: TurnResult,
  output: S,
): Promise<OutputResult<InferSchema<S>>> {
  const { outcome, turnId, sessionId } = result;
  if (outcome.type !== "finished") return { ...result, value: undefined };
  const { value } = outcome;
  const refused = (why: string, issues: readonly string[]) =>
    new TroupeError("output_invalid", `The answer of turn ${turnId} cannot be taken for its output: ${why}`, {
      details: { sessionId, turnId, issues },
    });
  if (value === undefined) throw refused("it has no value.", []);
  if (!isStandardSchema(output)) {
    // One that may take for ever was checked in the turn.
    const schema = jsonSchemaOf(output, "the output of a turn");
    const misfit = isCostlySchema(schema) ? undefined : outputMisfit(schema, value);
    if (misfit !== undefined) throw refused(misfit, [misfit]);
  }
  const parsed = await parseWith(output, value);
  if (!parsed.ok) throw refused(`${parsed.issues.join("; ")}.`, parsed.issues);
  return { ...result, value: parsed.value };
}
