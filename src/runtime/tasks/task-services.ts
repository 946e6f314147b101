import {
  checkTaskId,
  checkTaskIds,
  isEndedState,
  type TaskRecord,
  taskUnknown,
  unknownMethod,
} from "../../kernel/index.js";
import { HOST_METHODS, type HostMethod } from "../../plugin/index.js";
import type { OutsideAsk } from "../../session/index.js";
import type { Runtime } from "../places/index.js";
import type { Tasks } from "./tasks.js";

/** A chain of forks longer than this is not followed. */
const MAX_DEPTH = 64;

type TaskService = (ask: OutsideAsk) => Promise<unknown>;

/**
 * Answers the services about tasks. That the caller was granted them, and may see the session they are about, has been
 * checked where the call was made.
 */
export class TaskServices {
  readonly #runtime: Pick<Runtime, "store">;
  readonly #tasks: Tasks;

  constructor(runtime: Pick<Runtime, "store">, tasks: Tasks) {
    this.#runtime = runtime;
    this.#tasks = tasks;
  }

  static has(method: HostMethod): boolean {
    return HOST_METHODS[method] === "task";
  }

  answer(ask: OutsideAsk): Promise<unknown> {
    const service = this.#services[ask.method];
    if (service !== undefined) return service(ask);
    throw unknownMethod("The tasks", ask.method);
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
