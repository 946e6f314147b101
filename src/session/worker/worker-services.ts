import type { Clock } from "../../async/index.js";
import { TroupeError, toolIdOf } from "../../kernel/index.js";
import { StoreClient } from "../../store/index.js";
import { type ToolHome, ToolLimits, type ToolPool } from "../../tools/index.js";
import { Deadlines, type Lane } from "../../wire/index.js";
import type { HostToolCall, SessionWorkerSetup, TraceNote } from "../calls/index.js";
import { Suspects } from "../journal/index.js";
import type { HostGate, Surfaces } from "../plugins/index.js";
import type { Session, SessionServices } from "../state/index.js";

export interface ServiceParts {
  readonly setup: SessionWorkerSetup;
  readonly clock: Clock;
  /** To the main thread. */
  readonly lane: Lane;
  readonly pool: ToolPool;
  readonly models: SessionServices["models"];
  readonly surfaces: Surfaces;
  /** A session that is open on this worker. */
  readonly sessionOf: (sessionId: string) => Session | undefined;
  readonly host: HostGate;
  readonly onStoreLost: (error: TroupeError) => void;
}

/** What every session of a worker shares. */
export function workerServices({
  setup,
  clock,
  lane,
  pool,
  models,
  surfaces,
  ...parts
}: ServiceParts): SessionServices {
  const { prompt, budget, prices, config, mailboxLimit, journals } = setup;
  return {
    clock,
    deadlines: new Deadlines(clock),
    store: new StoreClient({ ...setup.store, clock, onLost: parts.onStoreLost }),
    models,
    prompt,
    budget,
    prices,
    surfaces,
    homes: { host: hostHome(lane), plugin: pluginHome(parts.sessionOf), pool },
    config,
    mailboxLimit,
    limits: new ToolLimits(),
    host: parts.host,
    relay: (method, argument) => lane.call("relay", [method, argument]),
    journals,
    suspects: new Suspects(),
    trace: { listening: setup.tracing, emit: (event) => lane.note("trace", event satisfies TraceNote) },
  };
}

/** Tools that are closures of the host run on the main thread. */
function hostHome(lane: Lane): ToolHome {
  return {
    run: (tool, args, { sessionId, turnId, callId, signal, cancelGraceMs: graceMs }) => {
      const call: HostToolCall = [tool.spec.name, args, { sessionId, turnId, callId }];
      return lane.call("tool", call, { signal, graceMs });
    },
  };
}

/** Tools of plugins run where their session's instance of the plugin is. */
function pluginHome(sessionOf: ServiceParts["sessionOf"]): ToolHome {
  return {
    run: (tool, args, context) => {
      const session = sessionOf(context.sessionId);
      if (tool.home.kind !== "plugin" || session === undefined) {
        throw new TroupeError("tool_unavailable", `${tool.spec.name} cannot be reached.`);
      }
      const { link, slot } = session.hooks.of(tool.home.pluginId);
      return link.tool(slot, toolIdOf(tool.spec), args, context);
    },
  };
}
