import type { MessagePort } from "node:worker_threads";
import { asTroupeError, TroupeError } from "../kernel/index.js";
import { type HookKind, type LoadedPlugin, loadPlugin } from "../plugin/index.js";
import { runHere } from "../tools/index.js";
import { importDefault, Lane, type ServedCall, type Service, serve } from "../wire/index.js";
import { KINDS, unpackFacts } from "./hook-facts.js";
import { PluginInstance } from "./plugin-instance.js";
import {
  type CaptureCall,
  type CaptureMode,
  HOOK_LANE_METHODS,
  type HookAnswer,
  type HookCall,
  type OpenInstance,
  type OperationRun,
  type PluginWorkerService,
  type ToolRun,
} from "./plugin-protocol.js";

const BEAT_MS = 50;

/** The plugin's side: one plugin module, one instance per session, a lane to every session worker. */
export function servePlugin(parentPort: MessagePort): void {
  let plugin: LoadedPlugin | undefined;
  const service: PluginWorkerService = {
    async load({ module, options, beat }) {
      plugin = await loadPlugin(await importDefault(module, "plugin"), options, module);
      // A thread whose event loop is blocked does not count on; that is how it is found.
      setInterval(() => Atomics.add(beat, 0, 1), BEAT_MS);
      return plugin.manifest;
    },
    attach({ port, name, stage }) {
      if (plugin === undefined) throw new TroupeError("plugin_not_loaded", "This thread has no plugin yet.");
      openHookLane(plugin, { port, name, stage });
    },
  };
  serve(parentPort, service satisfies Service);
}

/** The commit asks again for what failed here, and reports it. */
function tryCapture(instance: PluginInstance, mode: CaptureMode): { captured: boolean; state: Uint8Array | undefined } {
  try {
    return { captured: true, state: instance.capture(mode === 2) };
  } catch {
    return { captured: false, state: undefined };
  }
}

function openHookLane(plugin: LoadedPlugin, lane: Parameters<PluginWorkerService["attach"]>[0]): void {
  const { id } = plugin.manifest;
  /** By the session's number. One whose state could not be made or restored fails each of its calls with the reason. */
  const instances = new Map<number, { readonly sessionId: string; readonly instance: PluginInstance | TroupeError }>();

  const opened = (session: number) => {
    const found = instances.get(session);
    if (found === undefined) throw new TroupeError("plugin_session_unknown", `Plugin ${id} has no such session.`);
    if (found.instance instanceof TroupeError) throw found.instance;
    return found as { readonly sessionId: string; readonly instance: PluginInstance };
  };

  const open = ([session, sessionId, captured]: OpenInstance) => {
    instances.set(session, { sessionId, instance: makeInstance(plugin, sessionId, captured) });
  };

  const hook = (payload: HookCall, call: ServedCall): unknown => {
    const [session, kindNumber, capture] = payload;
    const { sessionId, instance } = opened(session);
    const kind = KINDS[kindNumber] as HookKind;
    const value = instance.hook(kind, (context) => unpackFacts(context, kind, sessionId, payload), call);
    if (capture === 0) return value;
    const answer = (settled: unknown): HookAnswer => ({ value: settled, ...tryCapture(instance, capture) });
    return value instanceof Promise ? value.then(answer) : answer(value);
  };

  const tool = ([session, toolName, args, facts]: ToolRun, call: ServedCall): unknown => {
    const definition = plugin.tools.get(toolName);
    if (definition === undefined) throw new TroupeError("tool_unavailable", `Plugin ${id} has no tool ${toolName}.`);
    return runHere(definition as never, args as never, opened(session).instance.toolContext(facts, call) as never);
  };

  new Lane(lane.port, {
    name: lane.name,
    stage: lane.stage,
    methods: HOOK_LANE_METHODS,
    serve(method, payload, call) {
      switch (method) {
        case "hook":
          return hook(payload as HookCall, call);
        case "tool":
          return tool(payload as ToolRun, call);
        case "operation": {
          const [session, name, args, sessionId] = payload as OperationRun;
          return opened(session).instance.operation(name, args, sessionId, call);
        }
        case "capture": {
          const [session, mode] = payload as CaptureCall;
          return opened(session).instance.capture(mode === 2);
        }
        default:
          throw new TroupeError("unknown_method", `A plugin worker does not serve ${method}.`);
      }
    },
    onNote(topic, payload) {
      if (topic === "open") open(payload as OpenInstance);
      else if (topic === "close") instances.delete(payload as number);
    },
  });
}

function makeInstance(
  plugin: LoadedPlugin,
  sessionId: string,
  captured: Uint8Array | undefined,
): PluginInstance | TroupeError {
  try {
    return new PluginInstance(plugin, sessionId, captured);
  } catch (error) {
    return asTroupeError(error, "plugin_state_failed");
  }
}
