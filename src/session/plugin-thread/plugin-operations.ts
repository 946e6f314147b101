import {
  asTroupeError,
  isToolOutput,
  type Json,
  messageOf,
  operationFailed,
  type ToolOutput,
  TroupeError,
  toolFailure,
} from "../../kernel/index.js";
import { type LoadedOperation, type LoadedPlugin, type OperationOutcome, parseAny } from "../../plugin/index.js";
import { plainResult } from "../../tools/index.js";

/**
 * What an operation comes to: arguments and outcome are checked against its schemas. Its code begins in the same tick, while
 * its call holds the thread: one that never returns is known by that.
 */
export async function runOperation(operation: LoadedOperation, args: unknown, context: object): Promise<unknown> {
  const { spec, input, output, run } = operation;
  const { name, kind } = spec;
  if (kind === "action") return { output: await runAction(operation, args, context) };
  const reading = parseAny(input, args ?? {}, name);
  const parsed = reading instanceof Promise ? await reading : reading;
  if (!parsed.ok) throw operationFailed(name, `its arguments are not valid: ${parsed.issues.join("; ")}.`);
  const returned = await run(parsed.value, context as never);
  const outcome = kind === "query" ? { output: returned } : readOutcome(returned, name);
  if (output === undefined) return outcome;
  const checked = await parseAny(output, outcome.output, name);
  if (!checked.ok) throw operationFailed(name, `its output is not valid: ${checked.issues.join("; ")}.`);
  return { ...outcome, output: checked.value };
}

/** An action never fails as a call: what goes wrong is its output. */
async function runAction(
  { spec, input, output, run }: LoadedOperation,
  args: unknown,
  context: object,
): Promise<ToolOutput> {
  const reading = parseAny(input, args ?? {}, spec.name);
  const parsed = reading instanceof Promise ? await reading : reading;
  if (!parsed.ok) {
    const why = `The arguments of ${spec.name} are not valid: ${parsed.issues.join("; ")}.`;
    return toolFailure("invalid_request", "invalid_action_args", why);
  }
  try {
    const returned = await run(parsed.value, context as never);
    if (isToolOutput(returned))
      return returned.status === "success" ? { ...returned, value: plainResult(returned.value) } : returned;
    if (output === undefined) return { status: "success", value: plainResult(returned) };
    const checked = await parseAny(output, returned, spec.name);
    if (checked.ok) return { status: "success", value: plainResult(checked.value) };
    const why = `The output of ${spec.name} is not valid: ${checked.issues.join("; ")}.`;
    return toolFailure("execution", "invalid_action_output", why);
  } catch (error) {
    const { code, message } = asTroupeError(error, "action_failed");
    return toolFailure("execution", code, message);
  }
}

function readOutcome(returned: unknown, name: string): OperationOutcome {
  if (typeof returned === "object" && returned !== null && "output" in returned) return returned as OperationOutcome;
  throw operationFailed(name, "it must return { output, events?, directives? }.");
}

/** As much of what a schema finds wrong as crosses. */
const MAX_PROBLEM = 2_000;

/** What is wrong with the payload of a plugin's trigger, by the plugin's own schema; undefined: it fits. */
export async function payloadProblem(
  { manifest, contributed }: LoadedPlugin,
  source: string,
  payload: Json,
): Promise<string | undefined> {
  const schema = contributed.payloadSchema(source);
  if (schema === undefined) return undefined;
  try {
    const parsed = await parseAny(schema, payload, `trigger ${source}`);
    return parsed.ok ? undefined : parsed.issues.join("; ").slice(0, MAX_PROBLEM);
  } catch (cause) {
    throw new TroupeError(
      "trigger_check_failed",
      `Plugin ${manifest.id} failed to check the payload of ${source}: ${messageOf(cause)}`,
      { cause, details: { pluginId: manifest.id, trigger: source } },
    );
  }
}
