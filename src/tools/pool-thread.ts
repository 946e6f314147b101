import { completionKeyOf, messageOf, TroupeError } from "../kernel/index.js";
import { checkTool, type ToolContext, type ToolDefinition } from "../plugin/index.js";
import { encodeError, importDefault } from "../wire/index.js";
import { describeTool } from "./describe.js";
import type { PoolAnswer, PoolTask } from "./pool-protocol.js";
import { runHere } from "./run-here.js";

/** A pool thread's side: imports the tool's module and runs it. Errors leave as data, so that their codes survive. */
export async function runPoolTask(task: PoolTask): Promise<PoolAnswer> {
  try {
    const definition = await load(task.module);
    const value =
      task.kind === "describe"
        ? describeTool(`tool module ${task.module}`, definition)
        : await runHere(definition, task.args, contextOf(task));
    return { ok: true, value };
  } catch (thrown) {
    return { ok: false, error: encodeError(thrown) };
  }
}

const loaded = new Map<string, ToolDefinition>();

async function load(module: string): Promise<ToolDefinition> {
  const known = loaded.get(module);
  if (known !== undefined) return known;
  const exported = await importDefault(module, "tool");
  try {
    const definition = checkTool("its default export", exported);
    loaded.set(module, definition);
    return definition;
  } catch (cause) {
    throw new TroupeError("tool_module_invalid", `${module} is not a tool module: ${messageOf(cause)}`, { cause });
  }
}

/** Nobody aborts this signal: a call that is to stop has its thread stopped. Made only for a tool that looks at it. */
function contextOf({ sessionId, turnId, callId }: PoolTask & { kind: "run" }): ToolContext {
  let signal: AbortSignal | undefined;
  return {
    sessionId,
    turnId,
    callId,
    get completionKey() {
      return completionKeyOf(sessionId, turnId, callId);
    },
    get signal() {
      signal ??= new AbortController().signal;
      return signal;
    },
  };
}
