import {
  type AppendNode,
  type CodeResult,
  isRecord,
  type Json,
  type JsonObject,
  type Message,
  type ModelResponse,
  type PromptContribution,
  type ProtocolStep,
  refusal,
  type ToolOutput,
  type ToolSpec,
  type Usage,
} from "../../kernel/index.js";
import type { Extensions, RuntimeSessionHost, SessionView } from "../host/index.js";
import type { PluginOptions } from "../schema/index.js";
import type { TriggerSpec } from "./operations.js";

/**
 * A protocol decides how a turn talks to the model. It is part of the turn, so its plugin is always inline. Every session
 * has exactly one protocol session and one driver; executor and prose projector are optional.
 */
export interface Protocol {
  readonly session?: ProtocolSession;
  readonly driver?: ProtocolDriver;
  readonly codeExecutor?: CodeExecutor;
}

/** Options a protocol keeps with a session. Another schema version than the reader's is refused, never guessed at. */
export interface ProtocolTurnOptions {
  readonly schemaVersion: number;
  readonly payload: Json;
}

export interface ProtocolSessionContext {
  readonly sessionId: string;
}

/** What a protocol can read and set when a session is opened. */
export interface ProtocolRuntimeContext extends ProtocolSessionContext {
  readonly turnOptions: ProtocolTurnOptions | undefined;
  /** Kept with the session and its current frame. */
  setTurnOptions(options: ProtocolTurnOptions): void;
  /** Kept with the session and every frame of it. */
  setTurnOptionsAllFrames(options: ProtocolTurnOptions): void;
}

/** Why and how a session is being opened: a root, a resumed one, a child. */
export interface ProtocolMaterialization {
  readonly pluginOptions: PluginOptions;
  readonly isRootSession: boolean;
}

/** What a protocol knows of the turn it is asked in. */
interface ProtocolTurnContext extends ProtocolSessionContext {
  readonly turnId: string;
  readonly turnOptions: ProtocolTurnOptions | undefined;
  /** What the turn brought along for the protocol. */
  readonly extension: Json | undefined;
  readonly host: RuntimeSessionHost;
  readonly signal: AbortSignal;
}

export interface BeforeLlmCallContext extends ProtocolTurnContext {
  readonly step: number;
  /** With the turn's own messages. */
  readonly messages: readonly Message[];
  /** Usage of the previous model call of this turn. */
  readonly latestUsage: Usage | undefined;
}

/** Instead of calling the model: the turn ends and the session goes on in another frame, begun with these nodes. */
export interface FrameSwitch {
  readonly kind: "switch_agent_frame";
  readonly frameId: string;
  readonly task: string;
  readonly initialNodes?: readonly AppendNode[];
}

type MaybePromise<T> = T | Promise<T>;

/** Every method is optional; what an absent one does is said with it. */
export interface ProtocolSession {
  /** At every opening, before the protocol restores anything. */
  initializeSession?(context: ProtocolSessionContext): MaybePromise<void>;
  /** At every opening, after the plugins were restored. */
  restoreSession?(context: ProtocolSessionContext, state: SessionView): MaybePromise<void>;
  /** Nodes are about to be appended from outside. A throw refuses the append. */
  appendSessionNodes?(context: ProtocolSessionContext, nodes: readonly AppendNode[]): MaybePromise<void>;
  /** The host hands the session something of the protocol's. Absent: refused. */
  applySessionExtension?(context: ProtocolSessionContext, extension: Json): MaybePromise<void>;
  /** A turn carries something of the protocol's. Absent: accepted. */
  validateTurnExtension?(context: ProtocolSessionContext, extension: Json): MaybePromise<void>;
  /** At every opening, last: applies and defaults the protocol's options. Not asynchronous. */
  configureOnMaterialize?(context: ProtocolRuntimeContext, materialization: ProtocolMaterialization): void;
  /** Before every model call of a turn. Nothing: go on. */
  beforeLlmCall?(context: BeforeLlmCallContext): MaybePromise<FrameSwitch | null | undefined>;
}

export interface PreambleInput {
  readonly tools: readonly ToolSpec[];
  readonly extensions: Extensions;
  readonly triggers: readonly TriggerSpec[];
  readonly contributions: readonly PromptContribution[];
  readonly turnOptions: ProtocolTurnOptions | undefined;
}

/** What a driver decides for a turn. Cached: the same input and the same plugin revisions give the same preamble. */
export interface Preamble {
  /** Tools the provider is told about. */
  readonly toolSpecs: readonly ToolSpec[];
  /** How the model is to work, for the prompt's execution slot; empty for nothing. */
  readonly executionPrompt: string;
  readonly promptContributions: readonly PromptContribution[];
  /** Make catalog and prompt anew before every model call, not only before the first. */
  readonly syncExecutionEnvironment: boolean;
  /** What the turn does with an answer. */
  interpret(response: ModelResponse): ProtocolStep;
}

export interface ProtocolDriver {
  /** `false`: preambles depend on their input alone, and are kept when a plugin's state changes. Default true. */
  readonly readsState?: boolean;
  buildPreamble(input: PreambleInput): Preamble;
}

export interface ExecRequest {
  readonly language: string;
  readonly code: string;
  /** May the code end the turn? */
  readonly acceptFinish: boolean;
}

export interface ExecutionContext extends ProtocolTurnContext {
  /** Aborted when the turn is cancelled or a tool hook aborts it. The turn then ends, whatever the code does. */
  readonly signal: AbortSignal;
  /** Calls a tool as the model would: same catalog, same hooks, same records. */
  callTool(toolName: string, args: JsonObject): Promise<ToolOutput>;
}

export interface CodeExecutor {
  executeCode(context: ExecutionContext, request: ExecRequest): MaybePromise<Partial<Omit<CodeResult, "toolCalls">>>;
  /** Asked at every commit; only when true is the state captured. */
  executionStateDirty?(): boolean;
  /** From here on it is no longer dirty. null: there is nothing to keep any more. A throw keeps what was captured last. */
  snapshotExecutionState?(context: ProtocolSessionContext): MaybePromise<Uint8Array | null>;
  restoreExecutionState?(context: ProtocolSessionContext, state: Uint8Array): MaybePromise<void>;
}

/** The payload of turn options written under this schema version; `protocol_options_invalid` for any other. */
export function decodeTurnOptions(options: unknown, schemaVersion: number): Json {
  const { schemaVersion: found, payload } = (options ?? {}) as Partial<Record<keyof ProtocolTurnOptions, unknown>>;
  if (!Number.isInteger(found)) throw optionsInvalid("their schema version is missing or no whole number");
  if (found !== schemaVersion) throw optionsInvalid(`they have schema version ${String(found)}, not ${schemaVersion}`);
  return (payload ?? null) as Json;
}

/** One turn's options over the session's: key by key when both are objects, otherwise the turn's alone. */
export function mergeTurnOptions(
  session: ProtocolTurnOptions | undefined,
  turn: ProtocolTurnOptions | undefined,
): ProtocolTurnOptions | undefined {
  if (turn === undefined) return session;
  if (session === undefined) return turn;
  if (turn.schemaVersion !== session.schemaVersion)
    throw optionsInvalid(`they have schema version ${turn.schemaVersion}, the session's ${session.schemaVersion}`);
  if (!isRecord(session.payload) || !isRecord(turn.payload)) return turn;
  return { schemaVersion: turn.schemaVersion, payload: { ...session.payload, ...turn.payload } };
}

/** Turn options from outside, checked. */
export function checkTurnOptions(options: unknown): ProtocolTurnOptions {
  const given = options as Partial<ProtocolTurnOptions> | null;
  if (typeof given !== "object" || given === null) throw optionsInvalid("they must be { schemaVersion, payload }");
  return {
    schemaVersion: given.schemaVersion as number,
    payload: decodeTurnOptions(given, given.schemaVersion as number),
  };
}

const optionsInvalid = refusal("protocol_options_invalid", "The protocol's turn options cannot be used");
