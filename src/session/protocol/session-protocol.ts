import { ignore } from "../../async/index.js";
import { type AppendNode, type Json, messageOf, protocolFailed, TroupeError } from "../../kernel/index.js";
import {
  type CodeExecutor,
  checkTurnOptions,
  duplicateSingleton,
  type Protocol,
  type ProtocolDriver,
  type ProtocolMaterialization,
  type ProtocolSession,
  type ProtocolTurnOptions,
  type SessionView,
} from "../../plugin/index.js";
import { encode } from "../../wire/index.js";
import type { PluginLink, PluginSlot } from "../plugins/index.js";
import { COMPONENT, Component } from "../stored/index.js";

/** A session's protocol: the pieces its plugins bring, each from one plugin. */
export class SessionProtocol {
  readonly sessionId: string;
  readonly session: ProtocolSession;
  readonly driver: ProtocolDriver;
  readonly codeExecutor: CodeExecutor | undefined;
  /** The turn options, and the executor's state as it was captured last. */
  readonly components = [new Component(COMPONENT.protocol), new Component(COMPONENT.execution)] as const;
  readonly #owners = new Map<string, string>();
  #turnOptions: ProtocolTurnOptions | undefined;

  /** Puts the pieces together; `protocol_missing` when there is no protocol session or no driver. */
  constructor(
    links: readonly PluginLink[],
    slots: readonly (PluginSlot | undefined)[],
    { sessionId, turnOptions }: { sessionId: string; turnOptions: ProtocolTurnOptions | undefined },
  ) {
    const pieces: { -readonly [S in keyof Protocol]: Protocol[S] } = {};
    links.forEach((link, index) => {
      const slot = slots[index];
      const protocol = slot === undefined ? undefined : link.protocol?.(slot);
      for (const [name, piece] of Object.entries(protocol ?? {})) {
        if (piece === undefined) continue;
        const other = this.#owners.get(name);
        if (other !== undefined) throw duplicateSingleton(`protocol ${name}`, other, link.manifest.id);
        this.#owners.set(name, link.manifest.id);
        Object.assign(pieces, { [name]: piece });
      }
    });
    const { session, driver, codeExecutor } = pieces;
    if (session === undefined) throw missing("session");
    if (typeof driver?.buildPreamble !== "function") throw missing("driver");
    this.sessionId = sessionId;
    this.session = session;
    this.driver = driver;
    this.codeExecutor = codeExecutor;
    this.#turnOptions = turnOptions;
  }

  /** Kept with the session; what a turn brings along is laid over them. */
  get turnOptions(): ProtocolTurnOptions | undefined {
    return this.#turnOptions;
  }

  /** The plugin a piece is from. */
  ownerOf(piece: keyof Protocol): string {
    return this.#owners.get(piece) ?? "";
  }

  async initialize(): Promise<void> {
    await this.#guard("initializeSession", () => this.session.initializeSession?.(this.#context));
  }

  /** The view is made only for a protocol that looks at it: making it reads the history. */
  async restore(view: () => Promise<SessionView>, execution: Uint8Array | undefined): Promise<void> {
    const { session } = this;
    if (session.restoreSession !== undefined) {
      const state = await view();
      await this.#guard("restoreSession", () => session.restoreSession?.(this.#context, state));
    }
    if (execution !== undefined) await this.#restoreExecution(execution);
  }

  /** The executor goes on from this state instead of its own; stored with the next commit. */
  async restoreExecution(execution: Uint8Array | null): Promise<void> {
    if (execution !== null) await this.#restoreExecution(execution);
    this.#setExecution(execution);
  }

  async #restoreExecution(execution: Uint8Array): Promise<void> {
    await this.#guard("restoreExecutionState", () =>
      this.codeExecutor?.restoreExecutionState?.(this.#context, execution),
    );
  }

  async append(nodes: readonly AppendNode[]): Promise<void> {
    await this.#guard("appendSessionNodes", () => this.session.appendSessionNodes?.(this.#context, nodes));
  }

  /** Refused unless the protocol says what to do with it. */
  async applyExtension(extension: Json): Promise<void> {
    if (this.session.applySessionExtension === undefined) {
      throw new TroupeError("protocol_extension_refused", "The protocol of this session accepts no extensions.");
    }
    await this.#guard("applySessionExtension", () => this.session.applySessionExtension?.(this.#context, extension));
  }

  /** Accepted unless the protocol objects. */
  async validateTurnExtension(extension: Json): Promise<void> {
    try {
      await this.session.validateTurnExtension?.(this.#context, extension);
    } catch (error) {
      const message = `The turn's extension was refused: ${messageOf(error)}`;
      throw new TroupeError("protocol_turn_extension", message, { cause: error });
    }
  }

  /** Applies and defaults the protocol's options; stored with the next commit when they changed. */
  materialize(materialization: ProtocolMaterialization): void {
    const before = this.#turnOptions;
    let options = before;
    // A frame that was left is never entered again, so the current one's options are those of all frames.
    const set = (given: ProtocolTurnOptions) => {
      options = checkTurnOptions(given);
    };
    const context = {
      ...this.#context,
      get turnOptions() {
        return options;
      },
      setTurnOptions: set,
      setTurnOptionsAllFrames: set,
    };
    try {
      const answer: unknown = this.session.configureOnMaterialize?.(context, materialization);
      if (answer instanceof Promise) {
        answer.catch(ignore);
        throw new Error("it is asynchronous; set the options at once");
      }
    } catch (error) {
      throw this.#failed("configureOnMaterialize", error);
    }
    this.#turnOptions = options;
    if (JSON.stringify(before) === JSON.stringify(options)) return;
    this.components[0].change(options === undefined ? null : encode(options));
  }

  /** The executor's state when it must be written: bytes, or null when there is none any more. Stored with the next commit. */
  async captureExecution(): Promise<Uint8Array | null | undefined> {
    const { codeExecutor } = this;
    if (codeExecutor?.snapshotExecutionState === undefined || codeExecutor.executionStateDirty?.() !== true)
      return undefined;
    const state: unknown = await codeExecutor.snapshotExecutionState(this.#context);
    if (state === null || state === undefined) return this.#setExecution(null);
    if (!(state instanceof Uint8Array))
      throw this.#failed("snapshotExecutionState", new Error("it returned neither bytes nor null"));
    // The executor may go on writing into its own.
    return this.#setExecution(Uint8Array.from(state));
  }

  #setExecution(state: Uint8Array | null): Uint8Array | null {
    this.components[1].change(state);
    return state;
  }

  get #context() {
    return { sessionId: this.sessionId };
  }

  async #guard(method: string, call: () => unknown): Promise<void> {
    try {
      await call();
    } catch (error) {
      throw this.#failed(method, error);
    }
  }

  #failed(method: string, error: unknown): TroupeError {
    const { sessionId } = this;
    const why = `of session ${sessionId} failed in ${method}: ${messageOf(error)}`;
    return protocolFailed(why, { cause: error, details: { sessionId, method } });
  }
}

function missing(piece: string): TroupeError {
  const message = `No plugin brings a protocol ${piece}. A protocol needs a session and a driver; see docs/plugins.md.`;
  return new TroupeError("protocol_missing", message, { details: { piece } });
}
