import type { MessagePort } from "node:worker_threads";
import { asTroupeError, TroupeError } from "../kernel/index.js";
import { type LoadedPlugin, loadPlugin } from "../plugin/index.js";
import { runHere } from "../tools/index.js";
import { importDefault, Lane, type ServedCall, type Service, serve } from "../wire/index.js";
import { PluginInstance } from "./plugin-instance.js";
import type { HookAnswer, HookCall, OpenInstance, PluginWorkerService, ToolRun } from "./plugin-protocol.js";

/** The plugin's side: one plugin module, one instance per session, a lane to every session worker. */
export function servePlugin(parentPort: MessagePort): void {
  let plugin: LoadedPlugin | undefined;
  const service: PluginWorkerService = {
    async load({ module, options }) {
      plugin = await loadPlugin(await importDefault(module, "plugin"), options, module);
      return plugin.manifest;
    },
    attach({ port, name }) {
      if (plugin === undefined) throw new TroupeError("plugin_not_loaded", "This thread has no plugin yet.");
      openHookLane(plugin, port, name);
    },
    ping: () => true,
  };
  serve(parentPort, service satisfies Service);
}

/** The commit asks again for what failed here, and reports it. */
function tryCapture(instance: PluginInstance): { captured: boolean; state: Uint8Array | undefined } {
  try {
    return { captured: true, state: instance.capture() };
  } catch {
    return { captured: false, state: undefined };
  }
}

function openHookLane(plugin: LoadedPlugin, port: MessagePort, name: string): void {
  /** A session whose state could not be made or restored keeps the reason: each of its calls fails with it. */
  const instances = new Map<string, PluginInstance | TroupeError>();

  const instanceOf = (sessionId: string): PluginInstance => {
    const instance = instances.get(sessionId);
    if (instance instanceof PluginInstance) return instance;
    throw (
      instance ??
      new TroupeError(
        "plugin_session_unknown",
        `Plugin ${plugin.manifest.id} has no instance for session ${sessionId}.`,
      )
    );
  };

  const open = ([sessionId, captured]: OpenInstance) => {
    try {
      instances.set(sessionId, new PluginInstance(plugin, sessionId, captured));
    } catch (error) {
      instances.set(sessionId, asTroupeError(error, "plugin_state_failed"));
    }
  };

  const hook = ([sessionId, kind, facts, capture]: HookCall, call: ServedCall): unknown => {
    const instance = instanceOf(sessionId);
    const value = instance.hook(kind, facts, call);
    if (!capture) return value;
    const answer = (settled: unknown): HookAnswer => ({ value: settled, ...tryCapture(instance) });
    return value instanceof Promise ? value.then(answer) : answer(value);
  };

  const tool = async ([sessionId, toolName, args, facts]: ToolRun, call: ServedCall): Promise<unknown> => {
    const definition = plugin.tools.get(toolName);
    if (definition === undefined)
      throw new TroupeError("tool_unavailable", `Plugin ${plugin.manifest.id} has no tool ${toolName}.`);
    return runHere(definition as never, args as never, instanceOf(sessionId).toolContext(facts, call) as never);
  };

  new Lane(port, {
    name,
    serve(method, payload, call) {
      switch (method) {
        case "hook":
          return hook(payload as HookCall, call);
        case "tool":
          return tool(payload as ToolRun, call);
        case "capture":
          return instanceOf(payload as string).capture();
        default:
          throw new TroupeError("unknown_method", `A plugin worker does not serve ${method}.`);
      }
    },
    onNote(topic, payload) {
      if (topic === "open") open(payload as OpenInstance);
      else if (topic === "close") instances.delete(payload as string);
    },
  });
}
