import {
  type AppendRequest,
  type AppendResult,
  admitInput,
  type CheckpointKind,
  checkAppend,
  checkBudget,
  checkSessionId,
  checkTurnInput,
  invalidOptions,
  type Json,
  type Message,
  nodeUnknown,
  type PendingInput,
  readAgentName,
  type SessionBudget,
  type SessionConfig,
  type SpendingReport,
  type SubscribeRequest,
  type TaskRecord,
  type ToolOutput,
  type TurnInput,
  type TurnResult,
  turnUnknown,
} from "../../kernel/index.js";
import type { InferSchema, NamedOperation, Schema, SubscriptionView } from "../../plugin/index.js";
import type {
  AnswerOf,
  ConfigReceipt,
  HostSessionView,
  MessageRange,
  Observed,
  OperationReceipt,
  Rewound,
  SessionInfo,
  SessionMethod,
  SessionSurface,
  ToldBy,
  TreeMessage,
} from "../../session/index.js";
import type { CallOptions } from "../../wire/index.js";
import type { Residence, Runtime } from "../places/index.js";
import {
  type CancelOptions,
  cancellationOf,
  extrasOf,
  HOST_CANCELLED,
  inputOptionsOf,
  type OutputResult,
  resultOptionsOf,
  type SteerOptions,
  type Turn,
  type TurnOptions,
  type TurnResultOptions,
  type Turns,
  withValue,
} from "../turns/index.js";
import {
  type AwaitTaskOptions,
  awaitTaskOptions,
  compactOptions,
  messageRange,
  operationOptions,
} from "./call-options.js";
import { type ForkOptions, fork, forkMany } from "./fork.js";
import type { ObserveOptions } from "./observe-options.js";
import { type OperationOptions, type PluginIdOf, type PluginRemote, pluginRemote } from "./plugin-remote.js";

/** What a session handle needs of the runtime. */
export interface HandleParts {
  readonly triggers: SessionTriggers;
  readonly tasks: SessionTasks;
  readonly runtime: Runtime;
  readonly turns: Turns;
  readonly observe: (sessionId: string, options: ObserveOptions) => AsyncIterableIterator<Observed>;
}

/** What a handle asks about events of the outside world. */
export interface SessionTriggers {
  subscribe(sessionId: string, source: string, request: SubscribeRequest): Promise<SubscriptionView>;
  unsubscribe(sessionId: string, key: string): Promise<boolean>;
  subscriptions(sessionId: string): Promise<readonly SubscriptionView[]>;
}

/** What a handle asks about work that goes on beside the session's turns. */
export interface SessionTasks {
  list(sessionId: string): Promise<readonly TaskRecord[]>;
  cancel(sessionId: string, id: string): Promise<TaskRecord>;
  awaited(sessionId: string, id: string, options: AwaitTaskOptions): Promise<TaskRecord>;
}

/** The handle of a session: the same one for as long as the session is open. */
export function handleOf(residence: Residence, parts: HandleParts): Session {
  if (residence.handle instanceof Session) return residence.handle;
  const handle = new Session(residence.id, parts);
  residence.handle = handle;
  return handle;
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
  readonly #parts: HandleParts;

  constructor(id: string, parts: HandleParts) {
    this.id = id;
    this.#parts = parts;
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
  turn<const S extends Schema>(
    input: TurnInput,
    options: TurnOptions & { readonly output: S },
  ): Turn<OutputResult<InferSchema<S>>>;
  turn(input: TurnInput, options?: TurnOptions): Turn;
  turn(input: TurnInput, options?: TurnOptions): Turn {
    const { turns } = this.#parts;
    const { output } = options ?? {};
    const extras = options === undefined ? {} : extrasOf(options);
    if (output === undefined) return turns.ask(this.id, checkTurnInput(input), extras);
    return turns.ask(this.id, checkTurnInput(input), extras, (result) => withValue(result, output));
  }

  /**
   * Stops the turn that runs, whoever began it: a handle, a queue, a plugin, a restart. Turns that wait behind it begin
   * then. `cancelled`: it ends so, also when the process dies before it has. `idle`: there is none, or it is being stored
   * and ends as it was decided. What was shown of its answer is kept, unless `keepPartial` is false.
   *
   * @example
   * await session.cancel("The user pressed stop.");
   */
  async cancel(reason: string = HOST_CANCELLED, options?: CancelOptions): Promise<"cancelled" | "idle"> {
    return this.#ask("cancelRunning", { cancellation: cancellationOf(reason, options, true) });
  }

  /**
   * Says something into the running turn: it is delivered at the turn's next checkpoint, exactly once. What comes too
   * late, or when no turn runs, begins the next turn. Asked again under the same key it waits once.
   *
   * @example
   * await session.steer("Only the cheap ones, please.");
   */
  async steer(input: TurnInput, options: SteerOptions = {}): Promise<PendingInput> {
    const { key, boundary = "after_work" } = inputOptionsOf(options, { steers: true });
    return this.#addInput(input, key, boundary);
  }

  /** Queues an input for the next turn; what waits together is one turn. It begins by itself when nothing else runs. */
  async enqueue(input: TurnInput, options: { readonly key?: string } = {}): Promise<PendingInput> {
    const { key } = inputOptionsOf(options, { steers: false });
    return this.#addInput(input, key, undefined);
  }

  /** What waits and no turn has taken yet. */
  inputs(): Promise<readonly PendingInput[]> {
    return this.#ask("inputs", {});
  }

  /** Takes an input back, by id or key. `already_taken`: the running turn has it. */
  async cancelInput(named: string): Promise<"cancelled" | "not_found" | "already_taken"> {
    // Inputs without a key would all be called undefined.
    if (typeof named !== "string") throw invalidOptions("an input is named by its id or its key, a text");
    return this.#ask("cancelInput", { named });
  }

  /**
   * What happens in the session, whoever asked for it: activities of all its turns, and what was stored. Each event has
   * a cursor; a reader that comes back with the last one it saw gets what it missed, or a `gap` in its place. `from:
   * "turn"` begins with the beginning of the turn that runs. Watching never slows a turn, and leaving the loop or aborting
   * the `signal` never ends one.
   *
   * @example
   * for await (const { cursor, event } of session.observe({ from: lastSeen ?? "turn", signal: request.signal })) {
   *   if (event.type === "activity") render(event.activity);
   *   lastSeen = cursor;
   * }
   */
  observe(options: ObserveOptions = {}): AsyncIterableIterator<Observed> {
    return this.#parts.observe(this.id, options);
  }

  /**
   * What a turn came to, by its id; of the turn that runs, when it is over. Known are the last turns that ended on the
   * session's worker and the last 32 that were named by a key: of another one that is stored it rejects with
   * `turn_result_forgotten`, and with `turn_unknown` when the session has no such turn.
   *
   * @example
   * const { outcome } = await session.turnResult(turnId, { signal: request.signal });
   */
  async turnResult(turnId: string, options: TurnResultOptions = {}): Promise<TurnResult> {
    const { signal } = resultOptionsOf(options);
    if (typeof turnId !== "string") throw turnUnknown("A turn's id is a text, such as t1.");
    return this.#ask("turnResult", { turnId }, { signal });
  }

  /** The session as it is now, the running turn included. */
  view(): Promise<HostSessionView> {
    return this.#ask("view", {});
  }

  /**
   * The conversation as it is stored, or a part of it. Frames that were left stay readable under their names, which
   * `view()` lists.
   *
   * @example
   * const lastTwo = await session.messages({ from: -2 });
   */
  async messages(range: MessageRange = {}): Promise<readonly Message[]> {
    return this.#ask("messages", { range: messageRange(range) });
  }

  /** What the session has spent by now, its children and direct completions included, and what it may. */
  spending(): Promise<SpendingReport> {
    return this.#ask("spending", {});
  }

  /**
   * Says what the session may spend from now on, or with null as much as it takes. It holds at once: a turn that was
   * paused because everything was spent goes on. Stored before this resolves.
   *
   * @example
   * await session.setBudget({ maxTokens: 200_000, whenSpent: "pause" });
   */
  async setBudget(budget: SessionBudget | null): Promise<SpendingReport> {
    return this.#ask("setBudget", { budget: budget === null ? null : checkBudget(budget) });
  }

  /**
   * Has the session told of an event that a plugin declares: each begins a turn of its own, also when the session is
   * parked. Asked for again under the same key it is one subscription. It goes with the session, and a fork has none.
   *
   * @example
   * await session.subscribe("mail.received", { filter: { from: "ada@example.com" }, input: "Ada wrote. Answer her." });
   */
  async subscribe(trigger: string, request: SubscribeRequest = {}): Promise<SubscriptionView> {
    this.#parts.runtime.checkOpen();
    return this.#parts.triggers.subscribe(this.id, trigger, request);
  }

  /** Takes a subscription back, by its key; false: there was none. */
  async unsubscribe(key: string): Promise<boolean> {
    this.#parts.runtime.checkOpen();
    return this.#parts.triggers.unsubscribe(this.id, key);
  }

  async subscriptions(): Promise<readonly SubscriptionView[]> {
    this.#parts.runtime.checkOpen();
    return this.#parts.triggers.subscriptions(this.id);
  }

  /** The work that goes on beside the session's turns, by when it began; what has ended is kept for a week. */
  async tasks(): Promise<readonly TaskRecord[]> {
    this.#parts.runtime.checkOpen();
    return this.#parts.tasks.list(this.id);
  }

  /** Ends a task as cancelled, and whatever does its work. One that has ended stays as it is. */
  async cancelTask(id: string): Promise<TaskRecord> {
    this.#parts.runtime.checkOpen();
    return this.#parts.tasks.cancel(this.id, id);
  }

  /**
   * A task when it has ended. The session is not told of an end that somebody waits for here.
   *
   * @example
   * const { state, result } = await session.awaitTask("acme.search:index", { waitMs: 10_000 });
   */
  async awaitTask(id: string, options: AwaitTaskOptions = {}): Promise<TaskRecord> {
    this.#parts.runtime.checkOpen();
    return this.#parts.tasks.awaited(this.id, id, awaitTaskOptions(options));
  }

  /** What plugins and host give this session: its tools, operations and triggers. */
  surface(): Promise<SessionSurface> {
    return this.#ask("surface", {});
  }

  /**
   * Gives the session another agent, between turns: `support@4`, or the newest `support`. Stored before this resolves,
   * with the agent's name and version. A session that was made by another one can only be given an agent with no more
   * tools and plugins than its maker's had (`authority_widened`).
   *
   * @example
   * await session.setAgent("support@4");
   */
  async setAgent(agent: string): Promise<string> {
    readAgentName(agent);
    return this.#ask("setAgent", { agent });
  }

  /**
   * Changes settings, between turns; plugins may correct them. Stored before this resolves.
   *
   * @example
   * const { config } = await session.configure({ instructions: "Answer in Norwegian." });
   */
  configure(change: Partial<SessionConfig>): Promise<ConfigReceipt> {
    return this.#ask("setConfig", { change });
  }

  /**
   * Has plugins that register do so again, and tools, catalog and prompt made anew with the next turn. Catalog and prompt
   * are made anew by themselves whenever a tool, an overlay or plugin state changes; this is for what a plugin knows and
   * does not tell.
   */
  refreshTools(): Promise<void> {
    return this.#ask("refreshTools", {});
  }

  /** Begins a new frame with what the plugins' compactors make of the conversation; false when none has anything. */
  async compact(options: { readonly instructions?: string | null } = {}): Promise<boolean> {
    const { instructions = null } = compactOptions(options);
    return this.#ask("compact", { instructions });
  }

  /**
   * Goes back to a node of the session's own tree, or with null before its first message, to ask something else from
   * there or the same again. What is left stays readable in `tree()` and as a frame, and can be gone back to. Plugin
   * state, tools, settings and what was spent stay as they are now. Refused with `turn_running` while a turn runs or
   * waits, with `node_unknown` and `node_unanswered` where no turn can go on. Stored before this resolves.
   *
   * @example
   * const [question] = (await session.tree()).filter(({ active, role }) => active && role === "user");
   * await session.rewind(question.parent); // before the question
   * await session.turn("What I meant was …");
   */
  async rewind(node: string | null): Promise<Rewound> {
    if (node !== null && typeof node !== "string")
      throw nodeUnknown(
        `A session is rewound to a node of its tree, or to null, not to ${typeof node === "object" ? "an object" : String(node)}.`,
        this.id,
      );
    return this.#ask("rewind", { node });
  }

  /** Appends messages or records to the history, between turns. */
  async append(request: AppendRequest): Promise<AppendResult> {
    checkAppend(request);
    return this.#ask("append", { request });
  }

  /** Hands the session's protocol something of its own; refused by protocols that take nothing. */
  extend(extension: Json): Promise<void> {
    return this.#ask("extend", { extension });
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
    return typeof first === "number" ? forkMany(first, options, (own) => this.#fork(own)) : this.#fork(first);
  }

  async #fork(options: ForkOptions): Promise<Session> {
    return handleOf(await fork(this.#parts.runtime, this.id, options), this.#parts);
  }

  /**
   * The messages as a tree, each behind its parent: the conversation (`active`), the frames that were left, and the
   * sessions forked from this one. As they are stored; asking does not bring a parked session back.
   */
  tree(): Promise<readonly TreeMessage[]> {
    return this.#ask("tree", {});
  }

  /**
   * Asks a plugin something. Answered at once, also while a turn runs.
   *
   * @example
   * const notes = await session.query("notes.list", { tag: "travel" });
   */
  async query<T = unknown>(name: string, args: unknown = {}, options: OperationOptions = {}): Promise<T> {
    const { output } = await this.#operate({ kind: "query", name, args }, options);
    return output as T;
  }

  /** Has a plugin do something between turns; its state is stored before this resolves. */
  command(name: string, args: unknown = {}, options: OperationOptions = {}): Promise<OperationReceipt> {
    return this.#operate({ kind: "command", name, args }, options);
  }

  /** A command that may take long. Cancelling is asking: a task that ignores the signal finishes, and it counts. */
  task(name: string, args: unknown = {}, options: OperationOptions = {}): Promise<OperationReceipt> {
    return this.#operate({ kind: "task", name, args }, options);
  }

  /** The older form of an operation: never fails as a call, its output says how it went. */
  async action(name: string, args: unknown = {}, options: OperationOptions = {}): Promise<ToolOutput> {
    const { output } = await this.#operate({ kind: "action", name, args }, options);
    return output as ToolOutput;
  }

  /**
   * A plugin's operations as methods, typed by the plugin: `remote["notes.add"](args, signal?)`, and by its parts
   * `remote.notes.add(…)`. A call goes where `query`, `command`, `task` and `action` go and keeps its place among them;
   * it resolves to the output, `remote.receipt("notes.add", args, options?)` to the whole receipt.
   *
   * @example
   * import type notes from "./notes.js"; // export default definePlugin({ id: "acme.notes", … })
   * const remote = session.plugin<typeof notes>("acme.notes");
   * const travel = await remote.notes.list({ tag: "travel" });
   */
  plugin<P = unknown>(id: PluginIdOf<P>): PluginRemote<P> {
    return pluginRemote((name, args, options) => this.#operate({ pluginId: id, name, args }, options));
  }

  /** Asking a parked session does not bring it back. */
  async info(): Promise<SessionInfo> {
    return this.#ask("info", {});
  }

  /**
   * Stores the session and frees its memory, behind everything that was asked of it; the runtime does so by itself with
   * sessions that are idle. The handle stays good: the next message brings the session back, as it was.
   */
  park(): Promise<void> {
    return this.#ask("park", {});
  }

  /**
   * Brings a parked session back before anybody asks something of it, and reads its history: the next turn need not wait
   * for either. A session that is in memory stays there.
   */
  resume(): Promise<void> {
    return this.#ask("resume", {});
  }

  /** Finishes the turns asked for, stores the session and frees its memory. It can be opened again. */
  async close(): Promise<void> {
    const { runtime } = this.#parts;
    runtime.checkOpen();
    const release = async (worker: number) => {
      await runtime.worker(worker).ask("release", { sessionId: this.id });
      await runtime.left(this.id);
    };
    await runtime.directory.moveOut(this.id, release);
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }

  #ask<M extends SessionMethod>(method: M, told: ToldBy<M>, options?: CallOptions): Promise<AnswerOf<M>> {
    return this.#parts.runtime.ask(method, { ...told, sessionId: this.id }, options);
  }

  async #addInput(
    input: TurnInput,
    key: string | undefined,
    boundary: CheckpointKind | undefined,
  ): Promise<PendingInput> {
    const { text, items } = admitInput(checkTurnInput(input), this.#parts.runtime.options.worker.attachments);
    return this.#ask("addInput", { text, items, key, boundary });
  }

  /** Cancelling a task is asking it, and so it is still waited for. Only the worker knows what a plugin's operation is. */
  async #operate(
    call: NamedOperation & { readonly args: unknown },
    options: OperationOptions,
  ): Promise<OperationReceipt> {
    const { sessionId: about, key, signal } = operationOptions(options);
    if (about !== undefined) checkSessionId(about);
    const cooperative = !("kind" in call) || call.kind === "task";
    return this.#ask("operate", { ...call, about, key }, { signal, cooperative });
  }
}
