import {
  type AppendRequest,
  type AppendResult,
  type Authority,
  type CatalogOverlay,
  type CheckpointKind,
  type Json,
  type PendingInput,
  type SessionConfig,
  type ToolOutput,
  TroupeError,
} from "../kernel/index.js";
import { checkTurnOptions, type OperationKind, type ProtocolTurnOptions, type SessionView } from "../plugin/index.js";
import type {
  ConfigReceipt,
  Observed,
  OperationReceipt,
  SessionInfo,
  SessionSurface,
  TurnExtras,
} from "../session/index.js";
import type { Turn } from "./turn.js";

export interface ForkOptions {
  /** The child's id. Default: the parent's with a random ending. */
  readonly id?: string;
  /** Where the child's history ends: at the parent's last stored turn. */
  readonly at?: "leaf";
  /** What the child may not do although its parent can. */
  readonly authority?: Authority;
  /** Another tool catalog overlay than the parent's. */
  readonly catalog?: CatalogOverlay;
}

export interface TurnOptions {
  /** For the protocol, this turn only: laid over the session's own options, key by key. */
  readonly protocolOptions?: ProtocolTurnOptions;
  /** Something of the protocol's; it may refuse the turn for it. */
  readonly protocolExtension?: Json;
}

export interface SteerOptions {
  /** The caller's own name for it. */
  readonly key?: string;
  /** `after_work` (default): from the next checkpoint on. `before_completion`: when the model has its answer. */
  readonly boundary?: CheckpointKind;
}

export interface OperationOptions {
  /** The session the operation is about, when it is not the one it is called on. */
  readonly sessionId?: string;
  /** Names the call: asked again under the same key, a command or task is answered, not repeated. */
  readonly key?: string;
  readonly signal?: AbortSignal;
}

/** What a session handle needs of the runtime. */
export interface SessionDriver {
  operate(
    sessionId: string,
    call: { readonly kind: OperationKind; readonly name: string; readonly args: unknown },
    options: OperationOptions,
  ): Promise<OperationReceipt>;
  turn(sessionId: string, input: string, extras: TurnExtras | undefined): Turn;
  view(sessionId: string): Promise<SessionView>;
  surface(sessionId: string): Promise<SessionSurface>;
  configure(sessionId: string, change: Partial<SessionConfig>): Promise<ConfigReceipt>;
  compact(sessionId: string, instructions: string | null): Promise<boolean>;
  append(sessionId: string, request: AppendRequest): Promise<AppendResult>;
  extend(sessionId: string, extension: Json): Promise<void>;
  addInput(
    sessionId: string,
    input: { readonly text: string; readonly key: string | undefined; readonly boundary: CheckpointKind | undefined },
  ): Promise<PendingInput>;
  inputs(sessionId: string): Promise<readonly PendingInput[]>;
  cancelInput(sessionId: string, named: string): Promise<"cancelled" | "not_found" | "already_taken">;
  observe(sessionId: string, cursor: string | undefined): AsyncIterableIterator<Observed>;
  fork(sessionId: string, options: ForkOptions): Promise<Session>;
  info(sessionId: string): Promise<SessionInfo>;
  release(sessionId: string): Promise<void>;
}

export const MAX_INPUT_LENGTH = 4 * 1024 * 1024;

/**
 * A session as the host holds it: a name and what can be asked of it. The session itself lives on its worker.
 *
 * @example
 * const session = await troupe.session("chat-42");
 * const { text } = await session.turn("Hello");
 */
export class Session {
  readonly id: string;
  readonly #driver: SessionDriver;

  constructor(id: string, driver: SessionDriver) {
    this.id = id;
    this.#driver = driver;
  }

  /** Asks for a turn. Turns of one session run one at a time, in the order they were asked for. */
  turn(input: string, { protocolOptions, protocolExtension }: TurnOptions = {}): Turn {
    const extras: TurnExtras = {
      ...(protocolOptions !== undefined && { options: checkTurnOptions(protocolOptions) }),
      ...(protocolExtension !== undefined && { extension: protocolExtension }),
    };
    return this.#driver.turn(this.id, checkInput(input), Object.keys(extras).length === 0 ? undefined : extras);
  }

  /**
   * Says something into the running turn: it is delivered at the turn's next checkpoint, exactly once. What comes too
   * late, or when no turn runs, begins the next turn. Asked again under the same key it waits once.
   *
   * @example
   * await session.steer("Only the cheap ones, please.");
   */
  async steer(text: string, { key, boundary = "after_work" }: SteerOptions = {}): Promise<PendingInput> {
    return this.#driver.addInput(this.id, { text: checkInput(text), key, boundary });
  }

  /** Queues an input for the next turn; what waits together is one turn. It begins by itself when nothing else runs. */
  async enqueue(text: string, { key }: { readonly key?: string } = {}): Promise<PendingInput> {
    return this.#driver.addInput(this.id, { text: checkInput(text), key, boundary: undefined });
  }

  /** What waits and no turn has taken yet. */
  inputs(): Promise<readonly PendingInput[]> {
    return this.#driver.inputs(this.id);
  }

  /** Takes an input back, by id or key. `already_taken`: the running turn has it. */
  cancelInput(named: string): Promise<"cancelled" | "not_found" | "already_taken"> {
    return this.#driver.cancelInput(this.id, named);
  }

  /**
   * What happens in the session, whoever asked for it: activities of all its turns, and what was stored. Each event has
   * a cursor; a reader that comes back with the last one it saw gets what it missed, or a `gap` in its place. Watching
   * never slows a turn, and leaving the loop never ends one.
   *
   * @example
   * for await (const { cursor, event } of session.observe({ cursor: lastSeen })) {
   *   if (event.type === "activity") render(event.activity);
   *   lastSeen = cursor;
   * }
   */
  observe({ cursor }: { readonly cursor?: string } = {}): AsyncIterableIterator<Observed> {
    return this.#driver.observe(this.id, cursor);
  }

  /** The session as it is now, the running turn included. */
  view(): Promise<SessionView> {
    return this.#driver.view(this.id);
  }

  /** What plugins and host give this session: its tools, operations and triggers. */
  surface(): Promise<SessionSurface> {
    return this.#driver.surface(this.id);
  }

  /**
   * Changes settings, between turns; plugins may correct them. Stored before this resolves.
   *
   * @example
   * const { config } = await session.configure({ instructions: "Answer in Norwegian." });
   */
  configure(change: Partial<SessionConfig>): Promise<ConfigReceipt> {
    return this.#driver.configure(this.id, change);
  }

  /** Begins a new frame with what the plugins' compactors make of the conversation; false when none has anything. */
  compact({ instructions = null }: { readonly instructions?: string | null } = {}): Promise<boolean> {
    return this.#driver.compact(this.id, instructions);
  }

  /** Appends messages or records to the history, between turns. */
  append(request: AppendRequest): Promise<AppendResult> {
    return this.#driver.append(this.id, request);
  }

  /** Hands the session's protocol something of its own; refused by protocols that take nothing. */
  extend(extension: Json): Promise<void> {
    return this.#driver.extend(this.id, extension);
  }

  /** A child that shares this session's history so far and goes its own way from here, on another worker. */
  fork(options: ForkOptions = {}): Promise<Session> {
    return this.#driver.fork(this.id, options);
  }

  /**
   * Asks a plugin something. Answered at once, also while a turn runs.
   *
   * @example
   * const notes = await session.query("notes.list", { tag: "travel" });
   */
  async query<T = unknown>(name: string, args: unknown = {}, options: OperationOptions = {}): Promise<T> {
    const { output } = await this.#driver.operate(this.id, { kind: "query", name, args }, options);
    return output as T;
  }

  /** Has a plugin do something between turns; its state is stored before this resolves. */
  command(name: string, args: unknown = {}, options: OperationOptions = {}): Promise<OperationReceipt> {
    return this.#driver.operate(this.id, { kind: "command", name, args }, options);
  }

  /** A command that may take long. Cancelling is asking: a task that ignores the signal finishes, and it counts. */
  task(name: string, args: unknown = {}, options: OperationOptions = {}): Promise<OperationReceipt> {
    return this.#driver.operate(this.id, { kind: "task", name, args }, options);
  }

  /** The older form of an operation: never fails as a call, its output says how it went. */
  async action(name: string, args: unknown = {}, options: OperationOptions = {}): Promise<ToolOutput> {
    const { output } = await this.#driver.operate(this.id, { kind: "action", name, args }, options);
    return output as ToolOutput;
  }

  info(): Promise<SessionInfo> {
    return this.#driver.info(this.id);
  }

  /** Finishes the turns asked for, stores the session and frees its memory. It can be opened again. */
  close(): Promise<void> {
    return this.#driver.release(this.id);
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }
}

/** What a turn can be asked with; `invalid_turn_input` says why something cannot. */
export function checkInput(input: unknown): string {
  if (typeof input !== "string") {
    throw new TroupeError(
      "invalid_turn_input",
      `A turn's input is a string, not ${input === null ? "null" : typeof input}.`,
    );
  }
  if (input.length > MAX_INPUT_LENGTH) {
    throw new TroupeError(
      "invalid_turn_input",
      `A turn's input has at most ${MAX_INPUT_LENGTH} characters; this one has ${input.length}.`,
    );
  }
  return input;
}
