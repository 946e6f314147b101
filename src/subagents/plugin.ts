import {
  definePlugin,
  type PluginToolContext,
  type SessionView,
  startedTask,
  TroupeError,
  toolError,
} from "../plugin/index.js";
import { answerOf, busy, saidOf } from "./answers.js";
import {
  type Agent,
  agentNamed,
  agentSessionOf,
  agentsOf,
  type Family,
  nameOf,
  rootOf,
  subtreeOf,
  whyNot,
} from "./family.js";
import { OPTIONS_SCHEMA, withDefaults } from "./options.js";

type Context = PluginToolContext<unknown, unknown, Family>;

const NAME = {
  type: "string",
  pattern: "^[A-Za-z0-9][A-Za-z0-9_-]{0,39}$",
  description: "Letters, digits, _ and -",
} as const;
const WAIT = {
  type: "boolean",
  description: "Wait for the answer. Otherwise you go on, and are told when it is there",
} as const;

interface SpawnArgs {
  readonly task: string;
  readonly name?: string;
  readonly kind?: string;
  readonly tools?: readonly string[];
  readonly with_conversation?: boolean;
  readonly wait?: boolean;
}

interface AskArgs {
  readonly agent: string;
  readonly message: string;
  readonly wait?: boolean;
}

/** An agent may take as long as it does: its turns have limits of their own, and a cancelled turn of its session ends it. */
const PATIENT_MS = 2 ** 31 - 1;

export default definePlugin({
  id: "troupe.subagents",
  version: "1.0.0",
  options: OPTIONS_SCHEMA,
  shared: { key: ({ sessionId }) => rootOf(sessionId), state: (): Family => ({ agents: [] }) },
  tools: {
    spawn_agent: {
      description:
        "Gives a task to a new agent, which works on its own and answers. It knows nothing of this conversation unless you tell it, so say in the task all that it needs. It stays to be asked again until you close it.",
      inputSchema: {
        type: "object",
        properties: {
          task: { type: "string", minLength: 1, description: "What it is to do, and what to answer" },
          name: NAME,
          kind: { type: "string", description: "One of the kinds that list_agents names. Default: as you are" },
          tools: {
            type: "array",
            items: { type: "string" },
            description: "The only tools of yours that it has. Default: all",
          },
          with_conversation: { type: "boolean", description: "It knows this conversation so far" },
          wait: WAIT,
        },
        required: ["task"],
        additionalProperties: false,
      },
      timeoutMs: PATIENT_MS,
      execute: (args, context: Context) => spawn(args as unknown as SpawnArgs, context),
    },
    ask_agent: {
      description: "Asks an agent of yours something more. It knows all that you and it have said before.",
      inputSchema: {
        type: "object",
        properties: { agent: NAME, message: { type: "string", minLength: 1 }, wait: WAIT },
        required: ["agent", "message"],
        additionalProperties: false,
      },
      timeoutMs: PATIENT_MS,
      execute: (args, context: Context) => ask(args as unknown as AskArgs, context),
    },
    list_agents: {
      description: "Your agents: which are at work and what they have cost; and the kinds of agents you may spawn.",
      inputSchema: { type: "object", properties: {}, additionalProperties: false },
      execute: (_args, context: Context) => list(context),
    },
    close_agent: {
      description: "Ends an agent of yours and all agents it has, whatever they are at.",
      inputSchema: { type: "object", properties: { agent: NAME }, required: ["agent"], additionalProperties: false },
      execute: (args, context: Context) => close((args as { readonly agent: string }).agent, context),
    },
  },
});

async function spawn(args: SpawnArgs, context: Context) {
  const { sessionId, callId, host, shared } = context;
  const { maxDepth, maxAgents, agents: kinds } = withDefaults(context.options);
  const view = await host.snapshotCurrent();
  const place = depthOf(view, maxDepth);
  const session = agentSessionOf(sessionId, callId);
  const { kind } = args;
  if (kind !== undefined && !Object.hasOwn(kinds, kind)) throw unknownKind(kind, kinds);
  const agent: Agent = {
    name: nameOf(args.name, session),
    session,
    parent: sessionId,
    call: callId,
    ...(kind !== undefined && { kind }),
  };
  const family = await shared.update((state) => {
    if (whyNot(state, agent, maxAgents) === undefined && !state.agents.some((other) => other.session === session))
      state.agents.push(agent);
  });
  if (!family.agents.some((other) => other.session === session)) {
    const why = whyNot(family, agent, maxAgents);
    // Between the update and this look somebody may have made room: asking again is the model's affair.
    throw toolError(why?.message ?? "Another agent took the last place. Try again.", {
      code: why?.code ?? "subagent_limit",
    });
  }
  try {
    await make(args, agent, { context, place });
  } catch (error) {
    await forget([agent], context);
    throw refused(error);
  }
  return work(agent, args.task, { wait: args.wait === true, context });
}

/** How deep a new agent is; throws what the model reads when agents may not be as deep. */
function depthOf(
  { subagent }: SessionView,
  mostDeep: number,
): { readonly depth: number; readonly maxDepth: number; readonly capability: string } {
  const maxDepth = Math.min(mostDeep, subagent?.maxDepth ?? mostDeep);
  const depth = (subagent?.depth ?? 0) + 1;
  if (depth <= maxDepth) return { depth, maxDepth, capability: subagent?.capability ?? "agent" };
  throw toolError("You are an agent as deep as agents may be, and can have none of your own. Do it yourself.", {
    code: "subagent_depth",
  });
}

function unknownKind(kind: string, kinds: Readonly<Record<string, string>>): TroupeError {
  const names = Object.keys(kinds);
  const known = names.length === 0 ? "Leave kind out." : `There are ${names.join(", ")}.`;
  return toolError(`There is no kind of agents ${kind}. ${known}`, { code: "subagent_unknown" });
}

/** The session of an agent; one that is there already is this call's, made before a crash. */
async function make(
  { tools, with_conversation: knows }: SpawnArgs,
  { session, kind }: Agent,
  { context, place }: { readonly context: Context; readonly place: ReturnType<typeof depthOf> },
): Promise<void> {
  const { host, sessionId } = context;
  const only = tools === undefined ? undefined : await toolsNamed(tools, context);
  // At the bottom there is nothing to do with them but to be refused.
  const hiddenTools = place.depth >= place.maxDepth ? ["spawn_agent", "ask_agent", "list_agents", "close_agent"] : [];
  const request: Parameters<Context["host"]["createSession"]>[0] = {
    sessionId: session,
    start: { kind: knows === true ? "current_session" : "empty" },
    ...(kind !== undefined && { agent: kind }),
    authority: { subagent: place, ...(only && { tools: only }), ...(hiddenTools.length > 0 && { hiddenTools }) },
    usageSource: "subagent",
  };
  try {
    await host.createSession(request);
  } catch (error) {
    if (!(error instanceof TroupeError) || error.code !== "session_exists") throw error;
    // Throws when it is somebody else's.
    const { parentSessionId } = await host.snapshotSession(session);
    if (parentSessionId !== sessionId) throw error;
  }
}

async function toolsNamed(names: readonly string[], { host, sessionId }: Context) {
  const all = await host.toolCatalog(sessionId);
  const missing = names.find((name) => !all.some((tool) => tool.name === name));
  if (missing !== undefined)
    throw toolError(`You have no tool ${missing} to give to an agent.`, { code: "tool_unknown" });
  if (names.length === 0) throw toolError("Name the tools it may have, or leave tools out.", { code: "tool_unknown" });
  return all
    .filter(({ name }) => names.includes(name))
    .map(({ id, name, description, inputSchema }) => ({ id, name, description, inputSchema }));
}

/** What the runtime refuses, in words the model reads. */
function refused(error: unknown): unknown {
  if (!(error instanceof TroupeError)) return error;
  return toolError(error.message, { code: error.code });
}

async function ask({ agent: name, message, wait = true }: AskArgs, context: Context) {
  const { sessionId, shared } = context;
  const agent = agentNamed(await shared.read(), sessionId, name);
  if ((await taskOf(agent, context)).task !== undefined) throw busy(agent);
  return work(agent, message, { wait, context });
}

async function work(
  agent: Agent,
  text: string,
  { wait, context }: { readonly wait: boolean; readonly context: Context },
) {
  const { host, callId } = context;
  const key = `agent:${callId}`;
  try {
    if (!wait) {
      const { deliver } = withDefaults(context.options);
      return startedTask(await host.startTurnTask(agent.session, { text, key, label: agent.name }), { deliver });
    }
    const result = await host.startTurn(agent.session, { text, key });
    return answerOf(agent, result);
  } catch (error) {
    throw saidOf(agent, error);
  }
}

async function list(context: Context) {
  const { sessionId, host, shared } = context;
  const { maxAgents, agents: kinds } = withDefaults(context.options);
  const family = await shared.read();
  const own = agentsOf(family, sessionId);
  const gone: Agent[] = [];
  const agents = [];
  for (const agent of own) {
    const view = await host.snapshotSession(agent.session).catch(() => undefined);
    if (view === undefined) gone.push(agent);
    else agents.push({ ...described(agent, view), ...(await taskOf(agent, context)) });
  }
  if (gone.length > 0) await forget(gone, context);
  return {
    agents,
    may_spawn: Math.max(0, maxAgents - family.agents.length + gone.length),
    ...(Object.keys(kinds).length > 0 && { kinds }),
  };
}

function described({ name, kind }: Agent, { running, turnIndex, ledger }: SessionView) {
  const tokens = ledger.reduce((sum, { usage }) => sum + usage.inputTokens + usage.outputTokens, 0);
  return { name, ...(kind !== undefined && { kind }), state: running ? "working" : "idle", answers: turnIndex, tokens };
}

/** The task of an agent that is at work and is not waited for. */
async function taskOf({ name }: Agent, { host, sessionId }: Context): Promise<{ readonly task?: string }> {
  const all = await host.listBackgroundTasks();
  const own = all.filter((task) => task.kind === "subagent" && task.sessionId === sessionId && task.label === name);
  const working = own.find(({ state }) => state === "running" || state === "idle");
  return working === undefined ? {} : { task: working.id };
}

async function close(name: string, context: Context) {
  const { sessionId, host, shared } = context;
  const family = await shared.read();
  const top = agentNamed(family, sessionId, name);
  const closed = subtreeOf(family, top);
  try {
    const { task } = await taskOf(top, context);
    // Its turn ends with its task, and the tasks of the agents it has with its session.
    if (task !== undefined) await host.cancelBackgroundTask(task);
    for (const { session } of closed) await host.closeSession(session);
  } catch (error) {
    throw saidOf(top, error);
  }
  await forget(closed, context);
  return { closed: closed.length };
}

async function forget(gone: readonly Agent[], { shared }: Context): Promise<void> {
  await shared.update((state) => {
    state.agents = state.agents.filter(({ session }) => !gone.some((agent) => agent.session === session));
  });
}
