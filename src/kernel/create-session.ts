import type { SessionConfig } from "./config.js";
import type { AppendNode } from "./graph.js";
import type { Json } from "./json.js";
import type { ToolSpec } from "./tools.js";

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
