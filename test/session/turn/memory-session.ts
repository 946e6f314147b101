import { systemClock } from "../../../src/async/index.js";
import {
  type Activity,
  DEFAULT_ATTACHMENTS,
  DEFAULT_CONFIG,
  type Json,
  type SessionConfig,
} from "../../../src/kernel/index.js";
import { createScriptedModel, type Model, ModelInstances, type ScriptStep } from "../../../src/model/index.js";
import { loadPlugin } from "../../../src/plugin/index.js";
import type { TurnExtras } from "../../../src/session/calls/index.js";
import { Suspects } from "../../../src/session/journal/trial.js";
import { openSession } from "../../../src/session/life/open-session.js";
import { Surfaces } from "../../../src/session/plugins/hook-table.js";
import { InlineLink } from "../../../src/session/plugins/inline-link.js";
import { standardProtocol } from "../../../src/session/protocol/standard-protocol.js";
import { Agents } from "../../../src/session/state/agents.js";
import type { SessionServices } from "../../../src/session/state/session.js";
import { IDLE, type Life, type LifeChart, lifeAfter } from "../../../src/session/state/session-life.js";
import { TokenCounts } from "../../../src/session/state/token-counts.js";
import { NO_EXTRAS, resumeTurn, runTurn } from "../../../src/session/turn/run-turn.js";
import type { TurnRequest, TurnSession } from "../../../src/session/turn/turn-session.js";
import { registerTool, ToolLimits } from "../../../src/tools/index.js";
import { PhaseProbe } from "../../../src/trace/index.js";
import { Deadlines } from "../../../src/wire/index.js";
import { MemoryStore } from "../../support/memory-store.js";

export interface MemorySessionOptions {
  readonly plugins?: readonly object[];
  /** Default: the standard protocol. */
  readonly protocol?: object;
  /** Called in this thread, with the turn's signal. */
  readonly tools?: Readonly<Record<string, (args: Json, signal: AbortSignal) => unknown>>;
  /** What the model says, turn by turn. */
  readonly says?: readonly (readonly ScriptStep[])[];
  /** Answers in the place of what `says` says. */
  readonly model?: Model;
  readonly config?: Partial<SessionConfig>;
  readonly store?: MemoryStore;
  readonly journals?: boolean;
  readonly onMismatch?: "use_recorded" | "stop";
}

/** A session over a store in this thread, and its turns: no thread, no actor, everything else as on a worker. */
export async function memorySession(options: MemorySessionOptions = {}) {
  const { store = new MemoryStore() } = options;
  const opened = await openSession(await memoryServices(options, store), "s", {
    chart: chartOf(),
    take: "always",
  });
  const session: TurnSession = opened;
  /** What listeners were told, by type. */
  const told: Activity["type"][] = [];
  const emit = (activity: Activity) => void told.push(activity.type);
  return {
    session,
    store,
    told,
    inputs: opened.inputs,
    unfinished: opened.life.unfinished,
    turn: (input: string, extras: TurnExtras = NO_EXTRAS, more: Partial<TurnRequest> = {}) =>
      runTurn(session, { input, emit, signal: new AbortController().signal, extras, ...more }),
    /** Takes the turn up that an earlier life of the session left behind. */
    resume: () => {
      if (opened.life.unfinished === undefined) throw new Error("No turn was left behind.");
      return resumeTurn(session, opened.life.unfinished, { emit, signal: new AbortController().signal });
    },
  };
}

/** A statechart of nothing but the life of the session's turns. */
function chartOf(): LifeChart {
  let life: Life = IDLE;
  return {
    life: () => life,
    send: (event) => {
      life = lifeAfter(life, event);
    },
  };
}

/** What a worker gives its sessions, over a store in this thread. */
export async function memoryServices(
  {
    plugins = [],
    protocol = standardProtocol,
    tools = {},
    says = [],
    model = createScriptedModel({ turns: says.length === 0 ? [[{ text: "You said: {input}" }]] : says }, systemClock),
    config,
    journals = false,
    onMismatch = "use_recorded",
  }: MemorySessionOptions,
  store: MemoryStore,
): Promise<SessionServices> {
  const loaded = await Promise.all([...plugins, protocol].map((each) => loadPlugin(each, undefined, "test")));
  const links = loaded.map(
    (plugin) =>
      new InlineLink({
        clock: systemClock,
        plugin,
        deadlineMs: 1_000,
        probe: new PhaseProbe(),
        host: nobody,
        development: false,
        optionalInChildren: false,
      }),
  );
  const registered = Object.keys(tools).map((name) =>
    registerTool(name, { description: "", inputSchema: { type: "object" } }, { kind: "host" }),
  );
  return {
    clock: systemClock,
    tenants: undefined,
    deadlines: new Deadlines(systemClock),
    // What a session uses of its store when it opens and runs turns.
    store: store as unknown as SessionServices["store"],
    models: new Map([["", model]]),
    agents: new Agents(),
    instances: new ModelInstances({ clock: systemClock, max: 4, loadMs: 1_000, ttlMs: null, secrets: undefined }),
    prompt: undefined,
    calling: {},
    turnLimit: { deadlineMs: null, countsWaiting: false, keepsPartial: true },
    firstToken: () => undefined,
    budget: null,
    prices: {},
    journals,
    onMismatch,
    development: false,
    suspects: new Suspects(),
    tokens: new TokenCounts(),
    surfaces: new Surfaces(links, registered, { dispatch: "sequential" }),
    checks: { check: nobody },
    homes: {
      host: { run: async ({ spec }, args, { signal }) => tools[spec.name]?.(args, signal) },
      plugin: { run: nobody },
      pool: { run: nobody },
    },
    config: { ...DEFAULT_CONFIG, ...config },
    mailboxLimit: 4,
    attachments: DEFAULT_ATTACHMENTS,
    limits: new ToolLimits(),
    host: nobody,
    relay: () => nobody(),
    trace: { listening: false, emit: () => undefined },
    events: undefined,
  };
}

function nobody(): Promise<never> {
  return Promise.reject(new Error("Nobody asks for this here."));
}
