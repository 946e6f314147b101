import { admitInput, checkAppend, checkSessionId } from "../kernel/index.js";
import { fork } from "./making.js";
import type { Observers } from "./observers.js";
import type { Runtime } from "./runtime.js";
import type { SessionDriver } from "./session-handle.js";
import type { Turns } from "./turns.js";

export interface DriverParts {
  readonly runtime: Runtime;
  readonly turns: Turns;
  readonly observers: Observers;
  readonly onForked: () => void;
}

/** What session handles ask, brought to where the sessions are. */
export function sessionDriver({ runtime, turns, observers, onForked }: DriverParts): SessionDriver {
  const use: Runtime["use"] = (id, call) => runtime.use(id, call);
  return {
    turn: (id, input, extras) => turns.ask(id, input, extras),
    view: (id) => use(id, (worker) => worker.view(id)),
    messages: (id, range) => use(id, (worker) => worker.conversation(id, range)),
    tree: (id) => use(id, (worker) => worker.tree(id)),
    spending: (id) => use(id, (worker) => worker.spending(id)),
    setBudget: (id, budget) => use(id, (worker) => worker.setBudget(id, budget)),
    surface: (id) => use(id, (worker) => worker.surface(id)),
    configure: (id, change) => use(id, (worker) => worker.inOrder("setConfig", { sessionId: id, change })),
    refreshTools: (id) => use(id, (worker) => worker.inOrder("refreshTools", { sessionId: id })),
    compact: (id, instructions) => use(id, (worker) => worker.inOrder("compact", { sessionId: id, instructions })),
    append: async (id, request) => {
      checkAppend(request);
      return use(id, (worker) => worker.inOrder("append", { sessionId: id, request }));
    },
    addInput: async (id, input, options) => {
      const { text, items } = admitInput(input, runtime.options.attachments);
      return use(id, (worker) => worker.inOrder("addInput", { sessionId: id, text, items, ...options }));
    },
    inputs: (id) => use(id, (worker) => worker.inOrder("inputs", { sessionId: id })),
    cancelInput: (id, named) => use(id, (worker) => worker.inOrder("cancelInput", { sessionId: id, named })),
    observe: (id, cursor) => observers.observe(id, cursor),
    extend: (id, extension) => use(id, (worker) => worker.inOrder("extend", { sessionId: id, extension })),
    operate: async (id, call, { sessionId: about, key, signal }) => {
      runtime.checkOpen();
      if (about !== undefined) checkSessionId(about);
      return runtime.directory.use(id, ({ worker }) =>
        runtime.worker(worker).operate({ ...call, sessionId: id, about, key }, signal),
      );
    },
    fork: async (id, options) => {
      const forked = await fork(runtime, id, options);
      onForked();
      return forked;
    },
    info: async (id) => use(id, (worker) => worker.info(id)),
    resume: (id) => use(id, (worker) => worker.resume(id)),
    park: (id) => use(id, (worker) => worker.park(id)),
    release: async (id) => {
      runtime.checkOpen();
      await runtime.directory.moveOut(id, (worker) => runtime.worker(worker).release(id));
    },
  };
}
