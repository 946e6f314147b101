import { completionKeyOf, messageOf, TroupeError } from "../../kernel/index.js";
import { checkTool, type ToolContext, type ToolDefinition } from "../../plugin/index.js";
import { encodeError, importDefault } from "../../wire/index.js";
import { describeTool, runHere } from "../tool-code/index.js";
import { type PoolAnswer, type PoolTask, STOP_CELL } from "./pool-calls.js";

/** A pool thread's side: imports the tool's module and runs it. Errors leave as data, so that their codes survive. */
export function poolThread(): (task: PoolTask) => Promise<PoolAnswer> {
  const loaded = new Map<string, ToolDefinition>();
  return (task) => runPoolTask(task, loaded);
}

async function runPoolTask(task: PoolTask, loaded: Map<string, ToolDefinition>): Promise<PoolAnswer> {
  try {
    const definition = await load(task.module, loaded);
    const value =
      task.kind === "describe"
        ? describeTool(`tool module ${task.module}`, definition)
        : await runHere(definition, task.args, contextOf(task));
    return { ok: true, value };
  } catch (thrown) {
    return { ok: false, error: encodeError(thrown) };
  } finally {
    if (task.kind === "run") release(task.stop);
  }
}

async function load(module: string, loaded: Map<string, ToolDefinition>): Promise<ToolDefinition> {
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

/** The signal is made only for a tool that looks at it. */
function contextOf({ sessionId, turnId, callId, stop }: PoolTask & { kind: "run" }): ToolContext {
  let signal: AbortSignal | undefined;
  return {
    sessionId,
    turnId,
    callId,
    get completionKey() {
      return completionKeyOf(sessionId, turnId, callId);
    },
    get signal() {
      signal ??= signalOf(stop);
      return signal;
    },
  };
}

/** TypeScript's lib of our target does not know it yet; Node 20 does. */
const { waitAsync } = Atomics as unknown as {
  waitAsync(cell: Int32Array, index: number, value: number): { readonly value: "not-equal" | Promise<unknown> };
};

/** A signal that aborts when the pool says so in the shared cell. */
function signalOf(stop: Int32Array): AbortSignal {
  const controller = new AbortController();
  const look = () => {
    if (Atomics.load(stop, 0) === STOP_CELL.stopped) controller.abort();
  };
  const { value: changed } = waitAsync(stop, 0, STOP_CELL.running);
  if (changed instanceof Promise) changed.then(look);
  else look();
  return controller.signal;
}

/** Nobody watches the cell of a call that is over. */
function release(stop: Int32Array): void {
  Atomics.compareExchange(stop, 0, STOP_CELL.running, STOP_CELL.over);
  Atomics.notify(stop, 0);
}
