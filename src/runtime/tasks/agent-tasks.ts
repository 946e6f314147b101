import { ignore } from "../../async/index.js";
import {
  asTroupeError,
  fingerprint,
  stepKey,
  type TaskCompletion,
  type TaskRecord,
  type TurnResult,
  taskIdOf,
} from "../../kernel/index.js";
import type { TurnTaskInput } from "../../plugin/index.js";
import type { OutsideAsk, RelayCall } from "../../session/index.js";
import { TASK_STEPS } from "../../store/index.js";
import { decode, encode } from "../../wire/index.js";
import type { Runtime } from "../places/index.js";
import { nameOf } from "./task-book.js";
import type { Tasks } from "./tasks.js";

/** What the work of a task is: a turn in another session. */
interface AgentWork {
  readonly session: string;
  readonly text: string;
}

interface AgentTasksParts {
  readonly runtime: Pick<Runtime, "onLeft" | "store"> & { readonly options: Pick<Runtime["options"], "clock"> };
  readonly tasks: Tasks;
  /** Asks something of another session, in the name of one. */
  readonly relay: (call: RelayCall) => Promise<unknown>;
  /** Has a session in memory, or parked, so that what is spent for it is counted. */
  readonly open: (sessionId: string) => Promise<unknown>;
}

/** The runtime ends, or the turn goes on later: so does the task, at the next start. */
const GOES_ON: readonly string[] = ["closed", "session_closed", "turn_suspended", "store_lost", "store_closed"];

/**
 * Turns in other sessions as tasks: those of kind `subagent`. The turn is named by its task, so that a task which is taken
 * up after a crash asks for the same turn and has its result, whether that has run, runs or is still to be begun.
 */
export class AgentTasks {
  readonly #parts: AgentTasksParts;
  readonly #running = new Map<string, Promise<void>>();
  #closed = false;

  constructor(parts: AgentTasksParts) {
    this.#parts = parts;
    parts.tasks.setKind("subagent", {
      cancel: (task) => this.#cancel(task),
      takeUp: (task) => this.#takeUp(task),
    });
    parts.runtime.onLeft.push((sessionId) => this.#left(sessionId));
  }

  /** Begins a turn in another session; the same call made again, and one under the same key, is the task that is there. */
  async start({ sessionId, pluginId, args, asked }: OutsideAsk): Promise<TaskRecord> {
    const { runtime, tasks } = this.#parts;
    const [session, { text, key, ...words }] = args as readonly [string, TurnTaskInput];
    const named = key ?? (asked === undefined ? undefined : fingerprint(asked).toString(36));
    const id = named === undefined ? runtime.options.clock.uuid() : taskIdOf(pluginId, named);
    const known = await tasks.find(sessionId, id);
    if (known !== undefined) return known;
    const work: AgentWork = { session, text };
    // First: a task that is there has its work.
    const row = { table: TASK_STEPS, session: sessionId, key: stepKey(id, 0), value: encode(work) };
    await runtime.store.ask("changeRows", { changes: [row] });
    const task = await tasks.register(sessionId, pluginId, {
      ...words,
      kind: "subagent",
      id,
      ...(key !== undefined && { key }),
    });
    this.#begin(task, work);
    return task;
  }

  /** The runtime closes: what does not come to its end goes on at the next start. */
  stop(): void {
    this.#closed = true;
  }

  /** Resolves when no turn is followed any more. */
  async ended(): Promise<void> {
    await Promise.allSettled(this.#running.values());
  }

  #begin(task: TaskRecord, work: AgentWork): void {
    const name = nameOf(task);
    const running = this.#run(task, work).finally(() => this.#running.delete(name));
    this.#running.set(name, running);
  }

  /** Never rejects. */
  async #run({ sessionId: from, id }: TaskRecord, { session: sessionId, text }: AgentWork): Promise<void> {
    const { relay, tasks } = this.#parts;
    let end: TaskCompletion;
    try {
      // Whether its session has a budget may change: it is asked each time.
      const asked = { from, sessionId, text, turnId: id, key: id, streams: false, limited: true };
      const { turnId } = (await relay(["startTurn", asked])) as { readonly turnId: string };
      end = endOf((await relay(["awaitTurn", { from, turnId }])) as TurnResult);
    } catch (thrown) {
      const { code, message } = asTroupeError(thrown, "turn_failed");
      if (this.#closed || GOES_ON.includes(code)) return;
      end = { state: "failed", error: { code, message } };
    }
    if (this.#closed && end.state !== "completed") return;
    // A session that is gone has no tasks.
    await tasks.complete(from, null, id, end).catch(ignore);
  }

  async #takeUp(task: TaskRecord): Promise<void> {
    const work = await this.#workOf(task);
    if (this.#running.has(nameOf(task))) return;
    await this.#parts.open(task.sessionId);
    this.#begin(task, work);
  }

  /** Its turn ends, and its session is closed with all that goes on there: agents of its own are tasks there. */
  async #cancel(task: TaskRecord): Promise<void> {
    const { relay, open } = this.#parts;
    const work = await this.#workOf(task);
    const name = nameOf(task);
    if (!this.#running.has(name)) {
      // Cancelled by a runtime whose process was killed before it ended the work: the turn may be going on by itself here.
      if (!(await isThere(open(work.session)))) return;
      this.#begin(task, work);
    }
    await relay(["cancelTurn", { from: task.sessionId, turnId: task.id }]).catch(ignore);
    await this.#running.get(name);
    await relay(["close", { sessionId: work.session }]);
  }

  /** A session is closed: those that still work for it have ended, and those that have ended are closed with it. */
  async #left(sessionId: string): Promise<void> {
    const { tasks } = this.#parts;
    if (!tasks.any) return;
    const sessions = new Set<string>();
    for (const task of await tasks.list(sessionId))
      if (task.kind === "subagent" && task.state !== "cancelled") sessions.add((await this.#workOf(task)).session);
    // One that somebody else has asked something goes on.
    for (const id of sessions) await this.#parts.relay(["close", { sessionId: id }]).catch(ignore);
  }

  async #workOf({ sessionId, id }: TaskRecord): Promise<AgentWork> {
    const row = await this.#parts.runtime.store.ask("row", {
      table: TASK_STEPS,
      session: sessionId,
      key: stepKey(id, 0),
    });
    if (row === undefined) throw new Error(`The task ${id} has lost its work.`);
    return decode<AgentWork>(row.value);
  }
}

/** False: the session was deleted. */
async function isThere(opening: Promise<unknown>): Promise<boolean> {
  try {
    await opening;
    return true;
  } catch (error) {
    if (asTroupeError(error, "turn_failed").code === "session_deleted") return false;
    throw error;
  }
}

function endOf({ outcome, text }: TurnResult): TaskCompletion {
  if (outcome.type === "finished") return { state: "completed", result: outcome.value ?? text };
  if (outcome.type === "frame_switch") return { state: "completed", result: text };
  const said = text === "" ? "" : ` It had said: ${text}`;
  return { state: "failed", error: { code: outcome.code, message: `${outcome.message}${said}` } };
}
