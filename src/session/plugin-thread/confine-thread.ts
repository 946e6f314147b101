import { type MessagePort, parentPort, workerData } from "node:worker_threads";
import { closeParentPort, closeProcessWide, hidePorts } from "../../wire/index.js";

/**
 * Takes from a thread, before it imports a plugin, what reaches past it: its line to the main thread, which it returns,
 * and, unless the plugin has all permissions, what changes the whole process. A seat belt like Node's permission model,
 * not a sandbox: see docs/isolation.md.
 */
export function confineThread(): MessagePort {
  const control = workerData as MessagePort;
  parentPort?.close();
  closeParentPort();
  hidePorts();
  // A `then` there would make every answer a promise that never settles. Whoever has all permissions may even that.
  if (process.permission !== undefined) Object.preventExtensions(Object.prototype);
  closeProcessWide();
  return control;
}
