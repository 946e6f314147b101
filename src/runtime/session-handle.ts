import {
  type AppendRequest,
  type AppendResult,
  type Authority,
  type CatalogOverlay,
  type CheckpointKind,
  checkBudget,
  checkPromptLayer,
  checkTurnInput,
  isRecord,
  type Json,
  type Message,
  type PendingInput,
  type PromptLayer,
  type SessionBudget,
  type SessionConfig,
  type SpendingReport,
  type ToolOutput,
  TroupeError,
  type TurnInput,
} from "../kernel/index.js";
import { checkTurnOptions, type OperationKind, type ProtocolTurnOptions, type SessionView } from "../plugin/index.js";
import type {
  ConfigReceipt,
  MessageRange,
  Observed,
  OperationReceipt,
  SessionInfo,
  SessionSurface,
  TreeMessage,
  TurnExtras,
} from "../session/index.js";
import type { Turn } from "./turn.js";

export interface ForkOptions {
  /** The child's id. Default: the parent's with a random ending. */
  readonly id?: string;
  /**
   * Where the child's history ends: at the parent's last stored turn (`"leaf"`, the default), or at a node that
   * `session.tree()` lists. Not inside a step, where a tool call has no result yet (`node_unanswered`).
   */
  readonly at?: "leaf" | (string & {});
  /**
   * What the child's plugins begin with: the parent's state as it is now (`"current"`, the default; also for a fork in
   * the past, because older state is not kept), or nothing (`"fresh"`).
   */
  readonly pluginState?: "current" | "fresh";
  /** What the child may not do although its parent can. */
  readonly authority?: Authority;
  /** Another tool catalog overlay than the parent's. */
  readonly catalog?: CatalogOverlay;
}

export interface TurnOptions {
  /**
   * The caller's own name for the turn: asked again under the same key, it is the same turn and runs once. Another input
   * under the key is a `turn_key_conflict`.
   */
  readonly key?: string;
  /** One of the runtime's `models`, for this turn only. */
  readonly model?: string;
  /** Laid over what host and session put into the system prompt, for this turn only. */
  readonly prompt?: PromptLayer;
  /** Model calls this turn may make; null for as many as it takes. */
  readonly maxSteps?: number | null;
  /** What single plugins are told at the turn's beginning, by plugin id. */
  readonly pluginInputs?: Readonly<Record<string, Json>>;
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
  turn(sessionId: string, input: TurnInput, extras: TurnExtras): Turn;
  view(sessionId: string): Promise<SessionView>;
  messages(sessionId: string, range: MessageRange): Promise<readonly Message[]>;
  tree(sessionId: string): Promise<readonly TreeMessage[]>;
  spending(sessionId: string): Promise<SpendingReport>;
  setBudget(sessionId: string, budget: SessionBudget | null): Promise<SpendingReport>;
  surface(sessionId: string): Promise<SessionSurface>;
  configure(sessionId: string, change: Partial<SessionConfig>): Promise<ConfigReceipt>;
  refreshTools(sessionId: string): Promise<void>;
  compact(sessionId: string, instructions: string | null): Promise<boolean>;
  append(sessionId: string, request: AppendRequest): Promise<AppendResult>;
  extend(sessionId: string, extension: Json): Promise<void>;
  addInput(
    sessionId: string,
    input: TurnInput,
    options: { readonly key: string | undefined; readonly boundary: CheckpointKind | undefined },
  ): Promise<PendingInput>;
  inputs(sessionId: string): Promise<readonly PendingInput[]>;
  cancelInput(sessionId: string, named: string): Promise<"cancelled" | "not_found" | "already_taken">;
  observe(sessionId: string, cursor: string | undefined): AsyncIterableIterator<Observed>;
  fork(sessionId: string, options: ForkOptions): Promise<Session>;
  info(sessionId: string): Promise<SessionInfo>;
  park(sessionId: string): Promise<void>;
  resume(sessionId: string): Promise<void>;
  release(sessionId: string): Promise<void>;
}

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

  /**
   * Asks for a turn, with a text or with texts and attachments. Turns of one session run one at a time, in the order they
   * were asked for. An input the host's policy does not let in is a turn too: it ends with `invalid_input`.
   *
   * @example
   * await session.turn("Hello");
   * await session.turn({
   *   items: [
   *     { type: "text", text: "What is on this picture?" },
   *     { type: "attachment", source: { kind: "inline", mediaType: "image/png", bytes } },
   *   ],
   * });
   */
  turn(input: TurnInput, options?: TurnOptions): Turn {
    return this.#driver.turn(this.id, checkTurnInput(input), options === undefined ? {} : extrasOf(options));
  }

  /**
   * Says something into the running turn: it is delivered at the turn's next checkpoint, exactly once. What comes too
   * late, or when no turn runs, begins the next turn. Asked again under the same key it waits once.
   *
   * @example
   * await session.steer("Only the cheap ones, please.");
   */
  async steer(input: TurnInput, { key, boundary = "after_work" }: SteerOptions = {}): Promise<PendingInput> {
    return this.#driver.addInput(this.id, checkTurnInput(input), { key, boundary });
  }

  /** Queues an input for the next turn; what waits together is one turn. It begins by itself when nothing else runs. */
  async enqueue(input: TurnInput, { key }: { readonly key?: string } = {}): Promise<PendingInput> {
    return this.#driver.addInput(this.id, checkTurnInput(input), { key, boundary: undefined });
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
  observe({ cursor }: { readonly cursor?: string | undefined } = {}): AsyncIterableIterator<Observed> {
    return this.#driver.observe(this.id, cursor);
  }

  /** The session as it is now, the running turn included. */
  view(): Promise<SessionView> {
    return this.#driver.view(this.id);
  }

  /**
   * The conversation as it is stored, or a part of it. Frames that were left stay readable under their names, which
   * `view()` lists.
   *
   * @example
   * const lastTwo = await session.messages({ from: -2 });
   */
  messages(range: MessageRange = {}): Promise<readonly Message[]> {
    return this.#driver.messages(this.id, range);
  }

  /** What the session has spent by now, its children and direct completions included, and what it may. */
  spending(): Promise<SpendingReport> {
    return this.#driver.spending(this.id);
  }

  /**
   * Says what the session may spend from now on, or with null as much as it takes. It holds at once: a turn that was
   * paused because everything was spent goes on. Stored before this resolves.
   *
   * @example
   * await session.setBudget({ maxTokens: 200_000, whenSpent: "pause" });
   */
  async setBudget(budget: SessionBudget | null): Promise<SpendingReport> {
    return this.#driver.setBudget(this.id, budget === null ? null : checkBudget(budget));
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

  /**
   * Has tools, catalog and prompt made anew with the next turn. They are by themselves whenever a tool, an overlay or
   * plugin state changes; this is for what a plugin knows and does not tell.
   */
  refreshTools(): Promise<void> {
    return this.#driver.refreshTools(this.id);
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

  /**
   * A child that shares this session's history, so far or up to a node, and goes its own way from there, on another
   * worker. No history is written for it.
   *
   * @example
   * const [question] = (await session.tree()).filter(({ role }) => role === "user");
   * const again = await session.fork({ at: question.node });
   */
  fork(options?: ForkOptions): Promise<Session>;
  /**
   * Several children of the same place; with an id theirs are `<id>/1`, `<id>/2`, … When one cannot be made, those that
   * were are closed again and the reason rejects. See `race` and `all`.
   *
   * @example
   * const { winner } = await race(await session.fork(3), "Find a proof.");
   */
  fork(count: number, options?: ForkOptions): Promise<readonly Session[]>;
  fork(first: number | ForkOptions = {}, options: ForkOptions = {}): Promise<Session | readonly Session[]> {
    return typeof first === "number" ? this.#forkMany(first, options) : this.#driver.fork(this.id, first);
  }

  async #forkMany(count: number, { id, ...options }: ForkOptions): Promise<readonly Session[]> {
    if (!Number.isSafeInteger(count) || count < 1)
      throw new TroupeError("invalid_options", `A session is forked once or more often, not ${count} times.`);
    const ids = Array.from({ length: count }, (_, n) => (id === undefined ? {} : { id: `${id}/${n + 1}` }));
    const forks = await Promise.allSettled(ids.map((own) => this.fork({ ...options, ...own })));
    const children = forks.flatMap((fork) => (fork.status === "fulfilled" ? [fork.value] : []));
    const failed = forks.find((fork) => fork.status === "rejected");
    if (failed === undefined) return children;
    await Promise.allSettled(children.map((child) => child.close()));
    throw failed.reason;
  }

  /**
   * The messages as a tree, each behind its parent: the conversation (`active`), the frames that were left, and the
   * sessions forked from this one. As they are stored; asking does not bring a parked session back.
   */
  tree(): Promise<readonly TreeMessage[]> {
    return this.#driver.tree(this.id);
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

  /** Asking a parked session does not bring it back. */
  info(): Promise<SessionInfo> {
    return this.#driver.info(this.id);
  }

  /**
   * Stores the session and frees its memory, behind everything that was asked of it; the runtime does so by itself with
   * sessions that are idle. The handle stays good: the next message brings the session back, as it was.
   */
  park(): Promise<void> {
    return this.#driver.park(this.id);
  }

  /**
   * Brings a parked session back before anybody asks something of it, and reads its history: the next turn need not wait
   * for either. A session that is in memory stays there.
   */
  resume(): Promise<void> {
    return this.#driver.resume(this.id);
  }

  /** Finishes the turns asked for, stores the session and frees its memory. It can be opened again. */
  close(): Promise<void> {
    return this.#driver.release(this.id);
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }
}

/** What a turn brings along beside its input, checked; an option nobody knows is mostly a spelling mistake. */
function extrasOf(options: TurnOptions): TurnExtras {
  if (typeof options !== "object" || options === null) throw invalidOption("the options are an object");
  const { key, model, prompt, maxSteps, pluginInputs, protocolOptions, protocolExtension, ...unknown } = options;
  const [stranger] = Object.keys(unknown);
  if (stranger !== undefined) throw invalidOption(`there is no option ${stranger}`);
  if (key !== undefined && (typeof key !== "string" || key === "" || key.length > MAX_KEY_LENGTH))
    throw invalidOption(`key is a string of 1 to ${MAX_KEY_LENGTH} characters`);
  if (model !== undefined && typeof model !== "string") throw invalidOption("model is the name of one of the models");
  if (maxSteps !== undefined && maxSteps !== null && !(Number.isSafeInteger(maxSteps) && maxSteps >= 1))
    throw invalidOption("maxSteps is a whole number from 1, or null");
  if (pluginInputs !== undefined && !isRecord(pluginInputs)) throw invalidOption("pluginInputs is an object");
  return {
    ...(key !== undefined && { key }),
    ...(model !== undefined && { model }),
    ...(prompt !== undefined && { prompt: checkPromptLayer(prompt) }),
    ...(maxSteps !== undefined && { maxSteps }),
    ...(pluginInputs !== undefined && { pluginInputs }),
    ...(protocolOptions !== undefined && { options: checkTurnOptions(protocolOptions) }),
    ...(protocolExtension !== undefined && { extension: protocolExtension }),
  };
}

const MAX_KEY_LENGTH = 256;

function invalidOption(why: string): TroupeError {
  return new TroupeError("invalid_turn_options", `The turn's options cannot be used: ${why}.`);
}
