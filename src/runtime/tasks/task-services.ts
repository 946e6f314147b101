import {
  checkDelivery,
  checkTaskId,
  checkTaskIds,
  isEndedState,
  type TaskRecord,
  taskUnknown,
  unknownMethod,
} from "../../kernel/index.js";
import { type HostMethod, TASK_DELIVER, taskService } from "../../plugin/index.js";
import type { OutsideAsk } from "../../session/index.js";
import type { Runtime } from "../places/index.js";
import type { TaskRun } from "./job-threads.js";
import type { Tasks } from "./tasks.js";

/** A chain of forks longer than this is not followed. */
const MAX_DEPTH = 64;

type TaskService = (ask: OutsideAsk) => Promise<unknown>;

/**
 * Answers the services about tasks. That the caller was granted them, and may see the session they are about, has been
 * checked where the call was made.
 */
export class TaskServices {
  readonly #runtime: Pick<Runtime, "store" | "ask">;
  readonly #tasks: Tasks;

  constructor(runtime: Pick<Runtime, "store" | "ask">, tasks: Tasks) {
    this.#runtime = runtime;
    this.#tasks = tasks;
  }

  static has(method: HostMethod): boolean {
    return method === TASK_DELIVER || taskService(method) !== undefined;
  }

  /** What the run of a job asks for. Only what is about the own session's tasks need not be asked there. */
  asked({ sessionId, plugin, signal }: TaskRun, method: string, args: readonly unknown[]): Promise<unknown> {
    const asked = method as HostMethod;
    const [count] = taskService(method) ?? [-1];
    if (args.length === count && asked !== "transferAsyncHandles")
      return this.answer({ sessionId, pluginId: plugin, method: asked, args, asked: undefined });
    return this.#runtime.ask("jobCall", { sessionId, pluginId: plugin, method: asked, args }, { signal });
  }

  answer(ask: OutsideAsk): Promise<unknown> {
    const { sessionId, method, args } = ask;
    // Said by a tool's answer, and by no plugin.
    if (method === TASK_DELIVER) return this.#tasks.deliver(sessionId, args[0] as string, checkDelivery(args[1]));
    const service = this.#services[method];
    if (service !== undefined) return service(ask);
    throw unknownMethod("The tasks", method);
  }

  /** A session's own tasks, and those of the sessions it was made from that are for it too. */
  async list(sessionId: string): Promise<TaskRecord[]> {
    const own = await this.#tasks.list(sessionId);
    const inherited = await Promise.all((await this.#ancestors(sessionId)).map((id) => this.#inherited(id)));
    return [...inherited.reverse().flat(), ...own];
  }

  /** Where a task is that a session may see. */
  async seen(sessionId: string, id: string): Promise<TaskRecord> {
    checkTaskId(id);
    const own = await this.#tasks.find(sessionId, id);
    if (own !== undefined) return own;
    for (const ancestor of await this.#ancestors(sessionId)) {
      const inherited = await this.#tasks.find(ancestor, id);
      if (inherited?.visibility === "descendants") return inherited;
    }
    throw taskUnknown(id);
  }

  #ancestors(sessionId: string): Promise<readonly string[]> {
    return this.#runtime.store.ask("ancestors", { sessionId, depth: MAX_DEPTH });
  }

  async #inherited(sessionId: string): Promise<TaskRecord[]> {
    return (await this.#tasks.list(sessionId)).filter(({ visibility }) => visibility === "descendants");
  }

  readonly #services: { readonly [M in HostMethod]?: TaskService } = {
    spawnManagedTask: ({ sessionId, pluginId, args: [request], asked }) =>
      this.#tasks.spawn(sessionId, pluginId, "managed", request as never, asked),
    spawnHiddenTask: ({ sessionId, pluginId, args: [request], asked }) =>
      this.#tasks.spawn(sessionId, pluginId, "hidden", request as never, asked),
    registerBackgroundTask: ({ sessionId, pluginId, args: [registration], asked }) =>
      this.#tasks.register(sessionId, pluginId, registration as never, asked),
    unregisterBackgroundTask: ({ sessionId, pluginId, args: [id] }) =>
      this.#tasks.unregister(sessionId, pluginId, id as string),
    completeBackgroundTask: async ({ sessionId, pluginId, args: [id, end] }) => {
      await this.#tasks.complete(sessionId, pluginId, id as string, end as never);
    },
    transitionBackgroundTaskLiveState: async ({ sessionId, pluginId, args: [id, state] }) => {
      await this.#tasks.transition(sessionId, pluginId, id as string, state as never);
    },
    listBackgroundTasks: ({ sessionId }) => this.list(sessionId),
    cancelBackgroundTask: ({ sessionId, args: [id] }) => this.#tasks.cancel(sessionId, id as string),
    // As the seed has it: what never was is cancelled enough.
    cancelManagedTask: async ({ sessionId, args: [id] }) => {
      const known = await this.#tasks.find(sessionId, id as string);
      if (known !== undefined) await this.#tasks.cancel(sessionId, id as string);
    },
    cancelAllBackgroundTasks: ({ sessionId }) => this.#tasks.cancelAll(sessionId),
    awaitHiddenTasks: ({ sessionId }) => this.#tasks.hiddenEnded(sessionId),
    validateAsyncHandlesVisible: async ({ sessionId, args: [ids] }) => {
      for (const id of checkTaskIds(ids))
        if (isEndedState((await this.seen(sessionId, id)).state)) throw taskUnknown(id);
    },
    transferAsyncHandles: ({ sessionId, args: [to, ids] }) =>
      this.#tasks.move(sessionId, to as string, checkTaskIds(ids)),
    cancelUnreferencedAsyncHandles: ({ sessionId, args: [keep] }) =>
      this.#tasks.cancelAll(sessionId, { except: checkTaskIds(keep) }),
  };
}
