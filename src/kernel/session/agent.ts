import type { TroupeError } from "../errors.js";
import type { Json } from "../json.js";
import { sameJson } from "../json.js";
import type { CallSettings } from "../model/index.js";
import type { PromptLayer } from "../prompt/index.js";
import { authorityWidened } from "../refusals.js";
import type { SessionBudget } from "../usage/index.js";
import type { NamedAgent } from "./agent-names.js";
import type { SessionConfig } from "./config.js";
import { notDroppable } from "./create-session.js";

/**
 * An agent as session workers have it: plain data, checked by whoever registered it. What it does not say is as the
 * runtime's options say.
 */
export interface Agent extends NamedAgent {
  /** Which of the workers' models answers. */
  readonly model?: string;
  /** What its sessions are configured with until they are configured otherwise. */
  readonly config: Partial<SessionConfig>;
  /** Over the host's share of the system prompt, and under the session's. */
  readonly prompt?: PromptLayer;
  /** The tools its sessions have, by name; all when it does not say. */
  readonly tools?: readonly string[];
  /** The plugins its sessions have, by id; all when it does not say. */
  readonly plugins?: readonly string[];
  /** The id of the plugin that is its protocol. */
  readonly protocol?: string;
  readonly budget?: SessionBudget;
  /** How its models are called, over the runtime's word and under that of a session. */
  readonly calling?: CallSettings;
}

/** Do two definitions say the same? */
export function sameAgent(a: Agent | undefined, b: Agent | undefined): boolean {
  return a === b || sameJson(a as unknown as Json, b as unknown as Json);
}

/** What a session is configured with before anybody configures it. */
export function configOf(base: SessionConfig, agent: Agent | undefined): SessionConfig {
  return agent === undefined ? base : { ...base, ...agent.config };
}

/** The fields in which a configuration differs from what it is laid over: those that somebody has set. */
export function configuredOver(base: SessionConfig, config: SessionConfig): Partial<SessionConfig> {
  const fields = Object.keys(config) as (keyof SessionConfig)[];
  return Object.fromEntries(
    fields
      .filter((field) => !sameJson(config[field] as Json, base[field] as Json))
      .map((field) => [field, config[field]]),
  );
}

/** What keeps a session that was made by another one from having more than that one. Undefined lists are no limit. */
export interface AgentBounds {
  readonly tools?: readonly string[] | undefined;
  readonly plugins?: readonly string[] | undefined;
}

/** The names both lists allow; undefined allows all. */
export function bothAllow(
  a: readonly string[] | undefined,
  b: readonly string[] | undefined,
): readonly string[] | undefined {
  if (a === undefined || b === undefined) return a ?? b;
  return a.filter((name) => b.includes(name));
}

interface PluginChoice {
  /** The session's own list, or that of the session it was made by. */
  readonly plugins: readonly string[] | undefined;
  /** The agent's. */
  readonly agent: Pick<Agent, "plugins"> | undefined;
  /** The session was made by another one. */
  readonly bound: boolean;
}

/**
 * Has a session this plugin? A list of its own counts before its agent's. In a session that was made by another one the
 * agent can only leave out what its maker has and what the host marked `optionalInChildren`.
 */
export function hasPlugin({ plugins, agent, bound }: PluginChoice, id: string, mayDrop: boolean): boolean {
  const wanted = agent?.plugins?.includes(id) !== false;
  if (!bound) return plugins === undefined ? wanted : plugins.includes(id);
  return plugins?.includes(id) !== false && (wanted || !mayDrop);
}

/**
 * Throws `authority_widened` when an agent has a tool or plugin that the maker of its session has not, and
 * `plugin_not_droppable` when it does without one that watches the maker.
 */
export function checkWithin(
  agent: Agent,
  bounds: AgentBounds,
  { all, mayDrop }: { readonly all: readonly string[]; readonly mayDrop: (pluginId: string) => boolean },
): void {
  const { tools, plugins = all } = bounds;
  // An agent without a list has what its session may have.
  const tool = agent.tools?.find((name) => tools?.includes(name) === false);
  if (tool !== undefined) throw widened(agent, `the tool ${tool}`, tools);
  const plugin = agent.plugins?.find((id) => !plugins.includes(id));
  if (plugin !== undefined) throw widened(agent, `the plugin ${plugin}`, plugins);
  const missing = plugins.find((id) => agent.plugins?.includes(id) === false && !mayDrop(id));
  if (missing === undefined) return;
  throw notDroppable(missing, { agent: agent.name });
}

function widened(agent: Agent, stranger: string, allowed: readonly string[] = []): TroupeError {
  const has = allowed.length === 0 ? "none" : allowed.join(", ");
  return authorityWidened(
    `The agent ${agent.name} has ${stranger}, which the session that made this one has not. That one has: ${has}`,
    { agent: agent.name },
  );
}
