import {
  type AppendRequest,
  type AppendResult,
  admitInput,
  type CheckpointKind,
  checkAppend,
  checkBudget,
  checkSessionId,
  checkTurnInput,
  type Json,
  type Message,
  type PendingInput,
  type SessionBudget,
  type SessionConfig,
  type SpendingReport,
  type ToolOutput,
  TroupeError,
  type TurnInput,
} from "../../kernel/index.js";
import type { NamedOperation, SessionView } from "../../plugin/index.js";
import type {
  AnswerOf,
  ConfigReceipt,
  MessageRange,
  Observed,
  OperationReceipt,
  SessionInfo,
  SessionMethod,
  SessionSurface,
  ToldBy,
  TreeMessage,
} from "../../session/index.js";
import type { CallOptions } from "../../wire/index.js";
import type { Residence, Runtime } from "../places/index.js";
import { extrasOf, type Turn, type TurnOptions, type Turns } from "../turns/index.js";
import { type ForkOptions, fork } from "./fork.js";
import { type OperationOptions, type PluginIdOf, type PluginRemote, pluginRemote } from "./plugin-remote.js";

export interface SteerOptions {
  /** The caller's own name for it. */
  readonly key?: string;
  /** `after_work` (default): from the next checkpoint on. `before_completion`: when the model has its answer. */
  readonly boundary?: CheckpointKind;
}

/** What a session handle needs of the runtime. */
export interface HandleParts {
  readonly runtime: Runtime;
  readonly turns: Turns;
  readonly observe: (sessionId: string, cursor: string | undefined) => AsyncIterableIterator<Observed>;
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
  turn(input: TurnInput, options?: TurnOptions): Turn {
    return this.#parts.turns.ask(this.id, checkTurnInput(input), options === undefined ? {} : extrasOf(options));
  }

  /**
   * Says something into the running turn: it is delivered at the turn's next checkpoint, exactly once. What comes too
   * late, or when no turn runs, begins the next turn. Asked again under the same key it waits once.
   *
   * @example
   * await session.steer("Only the cheap ones, please.");
   */
  async steer(input: TurnInput, { key, boundary = "after_work" }: SteerOptions = {}): Promise<PendingInput> {
    return this.#addInput(input, key, boundary);
  }

  /** Queues an input for the next turn; what waits together is one turn. It begins by itself when nothing else runs. */
  async enqueue(input: TurnInput, { key }: { readonly key?: string } = {}): Promise<PendingInput> {
    return this.#addInput(input, key, undefined);
  }

  /** What waits and no turn has taken yet. */
  inputs(): Promise<readonly PendingInput[]> {
    return this.#ask("inputs", {});
  }

  /** Takes an input back, by id or key. `already_taken`: the running turn has it. */
  cancelInput(named: string): Promise<"cancelled" | "not_found" | "already_taken"> {
    return this.#ask("cancelInput", { named });
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
    return this.#parts.observe(this.id, cursor);
  }

  /** The session as it is now, the running turn included. */
  view(): Promise<SessionView> {
    return this.#ask("view", {});
  }

  /**
   * The conversation as it is stored, or a part of it. Frames that were left stay readable under their names, which
   * `view()` lists.
   *
   * @example
   * const lastTwo = await session.messages({ from: -2 });
   */
  messages(range: MessageRange = {}): Promise<readonly Message[]> {
    return this.#ask("messages", { range });
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

  /** What plugins and host give this session: its tools, operations and triggers. */
  surface(): Promise<SessionSurface> {
    return this.#ask("surface", {});
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
  compact({ instructions = null }: { readonly instructions?: string | null } = {}): Promise<boolean> {
    return this.#ask("compact", { instructions });
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
    return typeof first === "number" ? this.#forkMany(first, options) : this.#fork(first);
  }

  async #fork(options: ForkOptions): Promise<Session> {
    return handleOf(await fork(this.#parts.runtime, this.id, options), this.#parts);
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
    const release = (worker: number) => runtime.worker(worker).ask("release", { sessionId: this.id });
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
    const { text, items } = admitInput(checkTurnInput(input), this.#parts.runtime.options.attachments);
    return this.#ask("addInput", { text, items, key, boundary });
  }

  /** Cancelling a task is asking it, and so it is still waited for. Only the worker knows what a plugin's operation is. */
  async #operate(
    call: NamedOperation & { readonly args: unknown },
    { sessionId: about, key, signal }: OperationOptions,
  ): Promise<OperationReceipt> {
    if (about !== undefined) checkSessionId(about);
    const cooperative = !("kind" in call) || call.kind === "task";
    return this.#ask("operate", { ...call, about, key }, { signal, cooperative });
  }
}
