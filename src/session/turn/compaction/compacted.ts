import type { AppendNode, ModelRequest } from "../../../kernel/index.js";
import type { CompletingSession } from "../../host-services/index.js";
import type { TurnSession } from "../turn-session.js";

/** What a running turn's model is asked with: a summary that is asked for alike is read from the provider's cache. */
export type PromptOfTurn = Pick<ModelRequest, "system" | "tools" | "cache" | "attachments">;

/** A session as far as its conversation is summed up. */
export type CompactingSession = CompletingSession &
  Pick<TurnSession, "hooks" | "past" | "stored" | "settings" | "graph" | "blobs" | "life">;

/** What a conversation is to go on with. */
export interface Compacted {
  /** Who says so. */
  readonly pluginId: string;
  /** What stands in the place of what was said. */
  readonly nodes: readonly AppendNode[];
  /** Messages of the beginning that stay before them. */
  readonly keep: number;
  /** The first of those at the end that come again behind them. Absent: none do. */
  readonly from?: number;
}

export interface AskedCompactors {
  readonly instructions: string | null;
  readonly signal: AbortSignal;
  /** Of the turn it is asked in. */
  readonly prompt?: PromptOfTurn;
  /** Does something that is paid for once, whatever becomes of the worker: `name` tells it from what else is. */
  readonly once: (name: string, run: () => Promise<string>) => string | Promise<string>;
}
