import { builtin, closeFunctions } from "./process-wide.js";

/** What another thread can be sent messages by, past the ports a plugin is given. */
const ACROSS_THREADS: Readonly<Record<string, readonly string[]>> = { worker_threads: ["postMessageToThread"] };

/** What foreign code posts to the thread that started this one would be that thread's to read: it finds no port for it. */
export function closeParentPort(): void {
  const threads = builtin("worker_threads");
  threads.parentPort = null;
  threads.workerData = null;
  for (const [name, functions] of Object.entries(ACROSS_THREADS)) closeFunctions(name, functions);
}

/**
 * The ports of a thread are objects of its event loop, which Node shows to whoever asks: foreign code that has the port
 * its thread's calls come by can answer in the name of every one of them.
 */
export function hidePorts(): void {
  const hooks = builtin("async_hooks");
  const { createHook, executionAsyncResource } = hooks;
  const { MessagePort: Port } = builtin("worker_threads");
  const isPort = (resource: unknown) => resource instanceof (Port as never);
  hooks.executionAsyncResource = () => {
    const resource = executionAsyncResource();
    return isPort(resource) ? {} : resource;
  };
  hooks.createHook = (callbacks: { init?: (...args: unknown[]) => void } = {}) => {
    const { init } = callbacks;
    if (typeof init !== "function") return createHook(callbacks);
    const shown = (id: number, type: string, trigger: number, resource: unknown) =>
      init.call(callbacks, id, type, trigger, isPort(resource) ? {} : resource);
    return createHook({ ...callbacks, init: shown });
  };
  Object.assign(process, { _getActiveHandles: () => [], _getActiveRequests: () => [] });
}
