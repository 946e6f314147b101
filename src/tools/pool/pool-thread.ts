import type { MessagePort } from "node:worker_threads";
import type { Clock } from "../../async/index.js";
import { completionKeyOf, messageOf, sentence, toolOptionsInvalid } from "../../kernel/index.js";
import {
  checkTool,
  compileSchema,
  loadPlugin,
  parseAny,
  type ToolDefinition,
  validateArgs,
} from "../../plugin/index.js";
import { encodeError, importDefault, moduleInvalid, postTo } from "../../wire/index.js";
import { serveJobs } from "../jobs/index.js";
import { askHere, type CallContext, describeTool, type NoteSink, packNote, runHere } from "../tool-code/index.js";
import {
  BEGUN_CELL,
  CHECK_CELL,
  type CheckTask,
  type JobTask,
  type PoolAnswer,
  type PoolTask,
  type PoolThreadData,
  STOP_CELL,
} from "./pool-calls.js";
import { TaskThread } from "./task-thread.js";

/**
 * A pool thread's side: imports the tool's module and runs it. Errors leave as data, so that their codes survive. What a
 * tool has done to the thread is found before the next task has it.
 */
export function poolThread(data: PoolThreadData, clock: Clock): (task: PoolTask) => Promise<PoolAnswer> {
  const loaded = new Map<string, ToolDefinition>();
  let rejections = 0;
  // The thread goes on, as a plugin's does: ended by it, the thread would sometimes take the answer of its call along.
  process.on("unhandledRejection", (reason) => {
    if (++rejections > MOST_TOLD) return;
    const modules = [...loaded.keys()].join(", ");
    const message = `A promise of a tool (${modules}) was rejected and nobody handled it: ${sentence(messageOf(reason))} Await it, or give it a catch. Its thread goes on.`;
    process.emitWarning(message, { code: "floating_rejection" });
  });
  const thread = new TaskThread(data);
  let port: MessagePort | undefined;
  const notes: NoteSink = {
    clock,
    tell: (_, note) => {
      if (port !== undefined) postTo(port, packNote(note));
    },
  };
  return async (task) => {
    if (task.kind === "check") return answerTo(await outcomeOf(() => check(task)));
    port = task.notes ?? port;
    try {
      // Before it has begun: the pool gives a task that its thread did not begin to another one.
      thread.enter();
    } catch (denied) {
      return answerTo({ thrown: denied });
    }
    if (!begins(task.stop)) return answerTo({ thrown: new Error("It was taken back.") });
    const onLoaded = () => thread.hasLoaded();
    const outcome = await outcomeOf(() =>
      task.kind === "job" ? serveJob(task, clock, onLoaded) : perform(task, { loaded, notes, onLoaded }),
    );
    const { isSpent, failure } = thread.leave();
    if (task.kind === "run") release(task.stop);
    const answer = answerTo(failure === undefined ? outcome : { thrown: failure });
    return isSpent ? { ...answer, isSpent } : answer;
  };
}

/** Rejections that nobody handled of which a thread tells. */
const MOST_TOLD = 16;

type Outcome = { readonly value: unknown } | { readonly thrown: unknown };

async function outcomeOf(work: () => unknown): Promise<Outcome> {
  try {
    return { value: await work() };
  } catch (thrown) {
    return { thrown };
  }
}

function answerTo(outcome: Outcome): PoolAnswer {
  return "thrown" in outcome ? { ok: false, error: encodeError(outcome.thrown) } : { ok: true, value: outcome.value };
}

interface ThreadParts {
  readonly loaded: Map<string, ToolDefinition>;
  readonly notes: NoteSink;
  readonly onLoaded: () => void;
}

/** The plugin is made anew for each run: what one has left in it is none of the next one's. */
async function serveJob({ module, options, port }: JobTask, clock: Clock, onLoaded: () => void): Promise<void> {
  const plugin = await loadPlugin(await importDefault(module, "plugin"), options, module);
  onLoaded();
  await new Promise<void>((resolve) => serveJobs(port, { plugins: [plugin], clock, onLost: resolve }));
}

async function perform(
  task: Exclude<PoolTask, CheckTask | JobTask>,
  { loaded, notes, onLoaded }: ThreadParts,
): Promise<unknown> {
  const definition = loaded.get(task.module) ?? (await load(task.module));
  loaded.set(task.module, definition);
  onLoaded();
  const options = await optionsOf(task.module, definition, task.options);
  return task.kind === "describe"
    ? describeTool(`tool module ${task.module}`, definition)
    : task.asks
      ? askHere(definition, task.args, contextOf(task, options))
      : runHere(definition, task.args, contextOf(task, options), notes);
}

function begins(cells: Int32Array): boolean {
  return Atomics.compareExchange(cells, 1, BEGUN_CELL.waiting, BEGUN_CELL.begun) === BEGUN_CELL.waiting;
}

/** As the tool's schema reads them. Read anew for each call: a tool that changes them changes its own copy. */
async function optionsOf(module: string, { options: schema }: ToolDefinition, options: unknown): Promise<unknown> {
  if (schema === undefined) return options ?? {};
  const parsed = await parseAny(schema, options ?? {}, `the options of ${module}`);
  if (parsed.ok) return parsed.value;
  const { issues } = parsed;
  throw toolOptionsInvalid(module, issues.join("; "), { details: { module, issues } });
}

/** Compiled before it has begun: a thread's first schema loads ajv. */
function check({ toolName, schema, args, begun }: CheckTask): string | undefined {
  compileSchema(schema, toolName);
  Atomics.store(begun, 0, CHECK_CELL.begun);
  return validateArgs(schema, args);
}

async function load(module: string): Promise<ToolDefinition> {
  const exported = await importDefault(module, "tool");
  try {
    return checkTool("its default export", exported);
  } catch (cause) {
    throw moduleInvalid("tool", module, messageOf(cause).replace(/\.$/, ""), cause);
  }
}

/** The signal is made only for a tool that looks at it. */
function contextOf(
  { sessionId, turnId, callId, stop }: PoolTask & { kind: "run" },
  options: unknown,
): CallContext & { readonly options: unknown } {
  let signal: AbortSignal | undefined;
  return {
    options,
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
