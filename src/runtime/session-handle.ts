import { TroupeError } from "../kernel/index.js";
import type { OperationKind } from "../plugin/index.js";
import type { Authority, OperationReceipt, SessionInfo } from "../session/index.js";
import type { Turn } from "./turn.js";

export interface ForkOptions {
  /** The child's id. Default: the parent's with a random ending. */
  readonly id?: string;
  /** Where the child's history ends: at the parent's last stored turn. */
  readonly at?: "leaf";
  /** What the child may not do although its parent can. */
  readonly authority?: Authority;
}

export interface OperationOptions {
  /** The session the operation is about, when it is not the one it is called on. */
  readonly sessionId?: string;
  readonly signal?: AbortSignal;
}

/** What a session handle needs of the runtime. */
export interface SessionDriver {
  operate(
    sessionId: string,
    call: { readonly kind: OperationKind; readonly name: string; readonly args: unknown },
    options: OperationOptions,
  ): Promise<OperationReceipt>;
  turn(sessionId: string, input: string): Turn;
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
  turn(input: string): Turn {
    return this.#driver.turn(this.id, checkInput(input));
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

function checkInput(input: unknown): string {
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
