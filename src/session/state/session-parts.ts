import type { Clock } from "../../async/index.js";
import type {
  AppendNode,
  Authority,
  CatalogOverlay,
  CheckpointKind,
  Head,
  InputItem,
  ModelPrices,
  Origin,
  PendingInput,
  PromptLayer,
  SessionBudget,
  SessionConfig,
  TurnResult,
} from "../../kernel/index.js";
import type { Model } from "../../model/index.js";
import type { StoreClient } from "../../store/index.js";
import type { SessionTools, ToolHomes, ToolLimits } from "../../tools/index.js";
import type { Deadlines } from "../../wire/index.js";
import type { HostRelay, SessionPluginOptions, TraceSink } from "../calls/index.js";
import type { Suspects } from "../journal/index.js";
import type { HostGate, PluginSlot, Surface, Surfaces } from "../plugins/index.js";
import type { SessionProtocol } from "../protocol/index.js";
import type { TurnKey } from "../stored/index.js";
import type { SessionInputs } from "./session-inputs.js";
import type { LifeChart } from "./session-life.js";

/** What every session of a worker shares. */
export interface SessionServices {
  readonly clock: Clock;
  /** Of every call that waits for somebody outside the worker. */
  readonly deadlines: Deadlines;
  readonly store: StoreClient;
  /** The host's models by name; what it gave as `model` is under "". */
  readonly models: ReadonlyMap<string, Model>;
  /** The host's share of every system prompt. */
  readonly prompt: PromptLayer | undefined;
  /** What sessions may spend until somebody says otherwise, and what models cost. */
  readonly budget: SessionBudget | null;
  readonly prices: ModelPrices;
  readonly surfaces: Surfaces;
  readonly homes: ToolHomes;
  /** What a session is configured with until somebody says otherwise. */
  readonly config: SessionConfig;
  readonly mailboxLimit: number;
  readonly limits: ToolLimits;
  /** Answers host services about the sessions of this worker. */
  readonly host: HostGate;
  /** To other sessions and the host, by way of the main thread. */
  readonly relay: HostRelay;
  readonly trace: TraceSink;
  /** Turns are written down as they go, and taken up again after a crash. */
  readonly journals: boolean;
  readonly suspects: Suspects;
}

/** What a fork takes along: references to what is stored, and the bytes of what is not. */
export interface SessionSnapshot {
  readonly parent: { readonly sessionId: string; readonly leaf: string | null };
  readonly turnIndex: number;
  /** Of the parent's history up to that leaf, when it was counted. */
  readonly messageCount: number | undefined;
  readonly components: Readonly<Record<string, string>>;
  /** Component name → bytes, for state that changed since the last commit. */
  readonly unsaved: Readonly<Record<string, Uint8Array>>;
}

/** What is to wait for a turn. With a boundary for the running one, from that checkpoint on. */
export interface InputRequest {
  readonly text: string;
  /** All of it, when it is more than a text. */
  readonly items: readonly InputItem[] | undefined;
  readonly key: string | undefined;
  readonly boundary: CheckpointKind | undefined;
}

/** What goes with a turn's commit beside the turn. */
export interface TurnCommit {
  readonly name: TurnKey | undefined;
  /** Of the turns before it, in the frames it came from. */
  readonly before: readonly TurnResult[] | undefined;
  readonly call: string | undefined;
  /** The frame it leaves for: entered next, also when a crash comes between. */
  readonly entering: NewFrame | undefined;
}

/** A frame to be entered. */
export interface NewFrame {
  readonly frameId: string;
  readonly reason: string;
  readonly nodes: readonly AppendNode[];
  readonly origin: Origin;
  /** What is to be done there: it waits for the next turn. */
  readonly task?: Pick<PendingInput, "id" | "text">;
}

export interface SessionParts {
  readonly id: string;
  readonly chart: LifeChart;
  readonly services: SessionServices;
  readonly head: Head | undefined;
  readonly surface: Surface;
  readonly slots: readonly (PluginSlot | undefined)[];
  readonly tools: SessionTools;
  readonly config: SessionConfig;
  readonly budget: SessionBudget | null;
  readonly authority: Authority;
  readonly overlay: CatalogOverlay;
  readonly protocol: SessionProtocol;
  readonly inputs: SessionInputs;
  readonly pluginOptions: SessionPluginOptions;
}
