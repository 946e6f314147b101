import { refusal, TroupeError } from "../errors.js";
import type { AppendNode } from "../history/index.js";
import { isRecord, type Json, sameJson } from "../json.js";
import { unknownName } from "../known-names.js";
import { authorityWidened } from "../refusals.js";
import { type ToolSpec, toolIdOf } from "../tools/index.js";
import type { SessionConfig } from "./config.js";

/** Where a new session's history and state begin. */
export type SessionStart =
  | { readonly kind: "empty" }
  | { readonly kind: "current_session" }
  | { readonly kind: "existing_session"; readonly sessionId: string };

/** What is known of a session that works for another one. Data for plugins; they decide by it. */
export interface SubagentContext {
  readonly capability: string;
  readonly depth: number;
  readonly maxDepth: number;
}

/** Which tools a session may have: exactly these definitions when any are given, and never the hidden ones. */
export interface ToolAccess {
  readonly tools?: readonly ToolSpec[];
  readonly hiddenTools?: readonly string[];
}

/** What is taken away from a tool catalog, after the contributors and before the authority's hides. */
export interface CatalogOverlay {
  readonly remove: readonly string[];
}

/**
 * What a child session may not do although its parent can, and what its plugins are told. Given when the session is
 * made, kept with it, never changed: on the way down it only ever grows narrower.
 */
export interface Authority extends ToolAccess {
  readonly subagent?: SubagentContext;
  /** Options for single plugins, by plugin id; each reads its own. */
  readonly pluginOptions?: Readonly<Record<string, Json>>;
  /** Plugins the child does without. Only those a host marked `optionalInChildren` can be dropped. */
  readonly withoutPlugins?: readonly string[];
}

/** Asks for a session, by a host service or a directive. */
export interface SessionCreateRequest {
  /** Default: the parent's id with a random ending. */
  readonly sessionId?: string;
  /** `child` (default) of the session that asks, or a `root` of its own. */
  readonly relation?: "child" | "root";
  /** Default `empty`. */
  readonly start?: SessionStart;
  readonly config?: Partial<SessionConfig>;
  /** Another agent than that of the session it starts from, with no more tools and plugins. Default: the same. */
  readonly agent?: string;
  /** `fresh`: plugins begin with their initial state. `fork` (default): with copies of the start session's. */
  readonly pluginSource?: "fresh" | "fork";
  readonly initialNodes?: readonly AppendNode[];
  /** Kept until somebody takes it to start the first turn with. */
  readonly firstTurnInput?: string;
  readonly authority?: Authority;
  readonly catalog?: CatalogOverlay;
  /** Under which name its usage stands in its creator's ledger. Default `child`. */
  readonly usageSource?: string;
}

/**
 * A request from a plugin, checked: `invalid_session_request` says what is wrong with it. A field nobody knows is wrong
 * too: a misspelt restriction would make a session that may do more than was meant. Ids, nodes and settings are checked
 * by what makes them.
 */
export function checkCreateRequest(request: unknown): SessionCreateRequest {
  const problem = isRecord(request)
    ? (problemIn(request, REQUEST) ?? narrowingProblem(request))
    : "it must be an object";
  if (problem !== undefined) throw invalid(problem);
  return request as SessionCreateRequest;
}

/**
 * What is wrong with how a child is to be narrowed, in words; undefined when nothing is. A name that is not in a list
 * would narrow nothing and nobody would notice.
 *
 * @example
 * narrowingProblem({ authority: { hiddenTools: "shell" } }); // "authority.hiddenTools must be a list of tool names"
 */
export function narrowingProblem({
  authority,
  catalog,
}: {
  authority?: unknown;
  catalog?: unknown;
}): string | undefined {
  const problem = problemIn({ authority, catalog }, REQUEST);
  return problem ?? (isRecord(authority) ? problemIn(authority, AUTHORITY, "authority") : undefined);
}

type Field = readonly [fits: (value: unknown) => boolean, is: string];

const isText = (value: unknown) => typeof value === "string";
const isNames = (value: unknown) => Array.isArray(value) && value.every(isText);
const oneOf =
  (...allowed: readonly string[]) =>
  (value: unknown) =>
    isText(value) && allowed.includes(value as string);

const REQUEST: { readonly [F in keyof Required<SessionCreateRequest>]: Field } = {
  sessionId: [isText, "a text"],
  relation: [oneOf("child", "root"), '"child" or "root"'],
  start: [isStart, '{ kind: "empty" }, { kind: "current_session" } or { kind: "existing_session", sessionId }'],
  config: [isRecord, "an object"],
  agent: [isText, "the name of an agent"],
  pluginSource: [oneOf("fresh", "fork"), '"fresh" or "fork"'],
  initialNodes: [Array.isArray, "a list of nodes"],
  firstTurnInput: [isText, "a text"],
  authority: [isRecord, "an object"],
  catalog: [(value) => isRecord(value) && isNames(value.remove), "{ remove: [tool names] }"],
  usageSource: [(value) => typeof value === "string" && value.trim() !== "", "a name"],
};

const AUTHORITY: { readonly [F in keyof Required<Authority>]: Field } = {
  tools: [(value) => Array.isArray(value) && value.every(isToolSpec), "a list of tools"],
  hiddenTools: [isNames, "a list of tool names"],
  subagent: [isSubagent, "{ capability, depth, maxDepth }"],
  pluginOptions: [isRecord, "options by plugin id"],
  withoutPlugins: [isNames, "a list of plugin ids"],
};

/** The first field that is unknown or does not fit. */
function problemIn(given: object, fields: Readonly<Record<string, Field>>, path = "it"): string | undefined {
  for (const [name, value] of Object.entries(given)) {
    const field = Object.hasOwn(fields, name) ? fields[name] : undefined;
    if (field === undefined) return unknownName(name, Object.keys(fields), path, "field");
    const [fits, is] = field;
    if (value !== undefined && !fits(value)) return `${path === "it" ? "" : `${path}.`}${name} must be ${is}`;
  }
  return undefined;
}

function isStart(value: unknown): boolean {
  if (!isRecord(value)) return false;
  if (value.kind === "existing_session") return isText(value.sessionId);
  return value.kind === "empty" || value.kind === "current_session";
}

function isSubagent(value: unknown): boolean {
  return isRecord(value) && isText(value.capability) && [value.depth, value.maxDepth].every(Number.isInteger);
}

function isToolSpec(value: unknown): boolean {
  return isRecord(value) && isText(value.name) && isText(value.description) && isRecord(value.inputSchema);
}

const invalid = refusal("invalid_session_request", "The session cannot be created");

/** What a session was made with: what it may not do, and what is taken out of its tool catalog. */
export interface StoredAuthority {
  readonly authority: Authority;
  readonly catalog: CatalogOverlay;
  /** The tools of the agent of the session it was made by: its own agent has no others, whichever that is. */
  readonly agentTools?: readonly string[];
  /** A session made it, so its agent can only narrow, although it is a root of its own. */
  readonly bound?: true;
}

export const NO_AUTHORITY: StoredAuthority = Object.freeze({ authority: {}, catalog: { remove: [] } });

/**
 * A child can narrow what its parent could do, never widen it. `mayDrop`: may a child do without this plugin?
 *
 * @example
 * narrowAuthority(NO_AUTHORITY, { authority: { hiddenTools: ["shell"] } }, () => false); // the child has no shell
 */
export function narrowAuthority(
  parent: StoredAuthority,
  { authority = {}, catalog }: { readonly authority?: Authority; readonly catalog?: CatalogOverlay },
  mayDrop: (pluginId: string) => boolean,
): StoredAuthority {
  for (const pluginId of authority.withoutPlugins ?? []) if (!mayDrop(pluginId)) throw notDroppable(pluginId);
  const withoutPlugins = union(parent.authority.withoutPlugins, authority.withoutPlugins);
  const tools = narrowTools(parent.authority.tools, authority.tools);
  const hiddenTools = union(parent.authority.hiddenTools, authority.hiddenTools);
  const subagent = narrowSubagent(parent.authority.subagent, authority.subagent);
  const pluginOptions = { ...parent.authority.pluginOptions, ...authority.pluginOptions };
  const merged: Authority = {
    ...(hiddenTools.length > 0 && { hiddenTools }),
    ...(tools !== undefined && { tools }),
    ...(subagent !== undefined && { subagent }),
    ...(withoutPlugins.length > 0 && { withoutPlugins }),
    ...((authority.pluginOptions ?? parent.authority.pluginOptions) !== undefined && { pluginOptions }),
  };
  // The overlay is inherited, or replaced as a whole: unlike authority it is no promise.
  return { ...parent, authority: merged, catalog: catalog ?? parent.catalog };
}

/** Nothing is kept from the session: there is nothing to store of it. */
export function isUnlimited({ authority, catalog, agentTools, bound }: StoredAuthority): boolean {
  const isFree = agentTools === undefined && bound === undefined;
  return isFree && Object.keys(authority).length === 0 && catalog.remove.length === 0;
}

/** No definitions mean no limit, so an empty list must not lift the parent's. */
function narrowTools(parent: Authority["tools"] = [], asked: Authority["tools"] = []): Authority["tools"] {
  if (asked.length === 0) return parent.length === 0 ? undefined : parent;
  const stranger = parent.length === 0 ? undefined : asked.find((tool) => !parent.some((own) => sameTool(own, tool)));
  if (stranger === undefined) return asked;
  const why = `The parent session has no such tool ${stranger.name} to give to a child: name, id and schema must be its own`;
  throw authorityWidened(why, { tool: stranger.name });
}

/**
 * A subagent's children are no higher up, reach no deeper and have its capability: what another capability allows is
 * known to plugins only, so it cannot be told to be less.
 */
function narrowSubagent(parent: Authority["subagent"], asked = parent): Authority["subagent"] {
  if (parent === undefined || asked === undefined) return asked;
  const { capability, depth, maxDepth } = asked;
  if (capability === parent.capability && depth >= parent.depth && maxDepth <= parent.maxDepth) return asked;
  const why = `The parent session is a subagent with capability ${parent.capability}, depth ${parent.depth} of ${parent.maxDepth}; a child keeps the capability, cannot have a lower depth or a higher maxDepth`;
  throw authorityWidened(why, { parent: { ...parent }, asked: { ...asked } });
}

/** Under another id a name is another tool, and under another schema it may be asked for more. */
function sameTool(a: ToolSpec, b: ToolSpec): boolean {
  // A schema is JSON.
  return a.name === b.name && toolIdOf(a) === toolIdOf(b) && sameJson(a.inputSchema as Json, b.inputSchema as Json);
}

function union(a: readonly string[] = [], b: readonly string[] = []): string[] {
  return [...new Set([...a, ...b])].sort();
}

/** What watches over the parent watches over the child, unless the host said that it need not. */
export function notDroppable(pluginId: string, details: Readonly<Record<string, unknown>> = {}): TroupeError {
  return new TroupeError(
    "plugin_not_droppable",
    `A child session cannot do without plugin ${pluginId}. Mark its entry optionalInChildren to allow it.`,
    { details: { pluginId, ...details } },
  );
}
