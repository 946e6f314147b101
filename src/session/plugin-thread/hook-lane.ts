import type { Clock } from "../../async/index.js";
import { asTroupeError, TroupeError } from "../../kernel/index.js";
import { type LoadedPlugin, pluginInvalid } from "../../plugin/index.js";
import { Caller, Lane, type ServedCall } from "../../wire/index.js";
import {
  type Captured,
  type CaptureMode,
  HOOK_LANE_METHODS,
  type HookAnswer,
  type HookLane,
  type HostService,
  hookOf,
  type OpenInstance,
  type PluginWorkerService,
  unpackFacts,
} from "./plugin-calls.js";
import { type HostAccess, type InstanceOptions, PluginInstance } from "./plugin-instance.js";

/** The commit asks again for what failed here, and reports it. */
function tryCapture(instance: PluginInstance, mode: CaptureMode): Captured | undefined {
  try {
    return instance.capture(mode === 2);
  } catch {
    return undefined;
  }
}

/** Host services across the thread: the session worker knows the call and so what it was granted. */
function hostAccess({ hostPort, name }: Parameters<PluginWorkerService["attach"]>[0], clock: Clock): HostAccess {
  // No deadline of its own: the call it is made in has one.
  const caller = new Caller<HostService>(hostPort, { name, clock, deadlineMs: Number.POSITIVE_INFINITY });
  hostPort.on("close", () => caller.lose());
  hostPort.on("messageerror", (error) => caller.lose(error));
  return ({ waiting, method, args, signal }) =>
    caller.to.host({ call: (waiting as ServedCall).id, method, args }, { signal });
}

/** Serves the calls of one session worker. */
export function openHookLane(
  plugin: LoadedPlugin,
  lane: Parameters<PluginWorkerService["attach"]>[0],
  { development, clock }: { readonly development: boolean; readonly clock: Clock },
): void {
  const { id } = plugin.manifest;
  const host = hostAccess(lane, clock);
  /** By the session's number. One whose state could not be made or restored fails each of its calls with the reason. */
  const sessions = new Map<number, OpenSession>();

  /** Made within its first call: when the plugin's own code ends the thread there, that call is lost and not made again. */
  const opened = (session: number) => {
    const found = sessions.get(session);
    if (found === undefined) throw new TroupeError("plugin_session_unknown", `Plugin ${id} has no such session.`);
    found.instance ??= makeInstance(plugin, found.options);
    if (found.instance instanceof TroupeError) throw found.instance;
    return found as OpenSession & { readonly instance: PluginInstance };
  };

  const calls: { readonly [M in keyof HookLane]: (payload: HookLane[M]["call"], call: ServedCall) => unknown } = {
    hook(payload, call) {
      const [session, kindNumber, capture] = payload;
      const { options, instance } = opened(session);
      const hook = hookOf(kindNumber);
      const value = instance.hook(hook, (context) => unpackFacts(context, hook.kind, options.sessionId, payload), call);
      if (capture === 0) return value;
      const answer = (settled: unknown): HookAnswer => ({ value: settled, captured: tryCapture(instance, capture) });
      return value instanceof Promise ? value.then(answer) : answer(value);
    },
    tool: ([session, toolId, args, facts], call) => opened(session).instance.tool(toolId, args, facts, call),
    operation: ([session, name, args, sessionId], call) =>
      opened(session).instance.operation(name, args, sessionId, call),
    capture: ([session, mode]) => opened(session).instance.capture(mode === 2),
    register([session]): HookLane["register"]["answer"] {
      const { contributions, stateful, protocol } = opened(session).instance;
      if (protocol === undefined) return { contributions, stateful };
      throw pluginInvalid(
        `plugin ${id}`,
        'it registered a protocol, which is part of every turn. Give it the tier "inline"',
      );
    },
  };

  new Lane(lane.port, {
    name: lane.name,
    clock,
    stage: lane.stage,
    methods: HOOK_LANE_METHODS,
    serve(method, payload, call) {
      if (Object.hasOwn(calls, method)) return calls[method as keyof HookLane](payload as never, call);
      throw new TroupeError("unknown_method", `A plugin worker does not serve ${method}.`);
    },
    onNote(topic, payload) {
      if (topic === "open") {
        const [session, sessionId, captured, init] = payload as OpenInstance;
        sessions.set(session, { options: { sessionId, captured, init, host, development }, instance: undefined });
      } else if (topic === "close") sessions.delete(payload as number);
    },
  });
}

interface OpenSession {
  readonly options: InstanceOptions;
  instance: PluginInstance | TroupeError | undefined;
}

function makeInstance(plugin: LoadedPlugin, options: InstanceOptions): PluginInstance | TroupeError {
  try {
    return new PluginInstance(plugin, options);
  } catch (error) {
    return asTroupeError(error, "plugin_state_failed");
  }
}
