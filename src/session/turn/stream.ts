import {
  type AttachmentPart,
  asTroupeError,
  type ModelEvent,
  ResponseBuilder,
  TroupeError,
  type UntimedActivity,
  type Usage,
} from "../../kernel/index.js";
import type { HookFacts } from "../../plugin/index.js";
import { readStreamTransform, type SessionHooks } from "../plugins/index.js";

type TextDelta = Extract<ModelEvent, { type: "text_delta" }>;
/** Of a stream that no hook sees. */
const NONE_OPEN: Set<string> = new Set();
export type FileEvent = Extract<ModelEvent, { type: "file" }>;

/**
 * One model call's stream on its way to the response and the host. Without stream hooks every event passes at once.
 * With them, text goes through the chain of hooks; while a chunk is away the following ones of its block join, so a
 * slow plugin slows nothing but itself. Order is kept: what comes behind a waiting chunk waits behind it. Text that was
 * not streamed is no business of stream hooks: it goes through the prose projector, whole.
 */
export class StreamPump {
  readonly response: ResponseBuilder;
  readonly #options: StreamPumpOptions;
  /** Only a hook that sees the text can end a model call without ending the turn. */
  readonly #stop: AbortController | undefined;
  #queue: ModelEvent[] = [];
  /** Not the promise: a pump that met no text is over before its promise could be kept. */
  #busy = false;
  /** Blocks that said something, while some hook is to be told of their end. */
  readonly #open: Set<string>;
  #pumping: Promise<void> | undefined;
  #failure: TroupeError | undefined;
  #aborted = false;
  #cost: Usage | undefined;

  constructor(options: StreamPumpOptions) {
    this.#options = options;
    const { hooks, earlierCalls, newCallId } = options;
    this.response = new ResponseBuilder(earlierCalls, newCallId);
    const hooked = hooks.has("assistant_stream") || hooks.has("assistant_prose_projector");
    this.#stop = hooked ? new AbortController() : undefined;
    this.#open = hooked ? new Set() : NONE_OPEN;
  }

  /** Aborts when the model call is no longer wanted: a hook aborted the stream, or it or the projector failed. */
  get stop(): AbortSignal | undefined {
    return this.#stop?.signal;
  }

  /** A hook ended the stream; the model call should be stopped. */
  get aborted(): boolean {
    return this.#aborted;
  }

  /** What the model said the call cost, whatever became of its answer; undefined when it did not come to that. */
  get cost(): Usage | undefined {
    return this.#cost;
  }

  push(event: ModelEvent): void {
    if (event.type === "finish") this.#cost = event.usage;
    if (this.#aborted || this.#failure !== undefined) return;
    if (this.#stop === undefined) {
      this.#pass(event);
      return;
    }
    const last = this.#queue[this.#queue.length - 1];
    if (event.type === "text_delta" && last?.type === "text_delta" && last.blockId === event.blockId) {
      this.#queue[this.#queue.length - 1] = { ...last, text: last.text + event.text };
    } else {
      this.#queue.push(event);
    }
    if (this.#busy) return;
    this.#busy = true;
    this.#pumping = this.#pump();
  }

  /** Resolves when everything pushed has passed; throws the error of a failed hook or projector. */
  async drain(): Promise<void> {
    await this.#pumping;
    if (this.#failure !== undefined) throw this.#failure;
  }

  async #pump(): Promise<void> {
    try {
      for (let event = this.#queue.shift(); event !== undefined; event = this.#queue.shift()) {
        if (event.type === "text_delta" && event.text !== "") await this.#transform(event, this.#endsNext(event));
        else if (event.type === "text_end" && this.#open.has(event.blockId)) await this.#end(event);
        else if (event.type === "finish" && this.#open.size > 0) await this.#endAll(event);
        else if (event.type === "text") this.#pass({ ...event, text: await this.#project(event.text) });
        else this.#pass(event);
        if (this.#aborted) this.#queue = [];
      }
    } catch (error) {
      const cause = asTroupeError(error, "hook_failed");
      this.#failure =
        cause.code === "plugin_prose_projector"
          ? cause
          : new TroupeError("plugin_assistant_stream", `A stream hook failed: ${cause.message}`, { cause });
      this.#queue = [];
      this.#stop?.abort();
    } finally {
      this.#busy = false;
    }
  }

  /** The end of its block is here already: its hooks are told with the same call. */
  #endsNext({ blockId }: TextDelta): boolean {
    const next = this.#queue[0];
    if (!this.#options.hooks.hasFinal) return false;
    return next?.type === "finish" || (next?.type === "text_end" && next.blockId === blockId);
  }

  async #end(event: Extract<ModelEvent, { type: "text_end" }>): Promise<void> {
    await this.#transform({ type: "text_delta", blockId: event.blockId, text: "" }, true);
    if (!this.#aborted) this.#pass(event);
  }

  /** Of a model that does not say where its blocks end. */
  async #endAll(event: Extract<ModelEvent, { type: "finish" }>): Promise<void> {
    for (const blockId of [...this.#open]) {
      if (!this.#aborted) await this.#transform({ type: "text_delta", blockId, text: "" }, true);
    }
    if (!this.#aborted) this.#pass(event);
  }

  /** `ends`: hooks that want to know are told that the block is over. */
  async #transform({ blockId, ...event }: TextDelta, ends: boolean): Promise<void> {
    const { hooks, facts, signal } = this.#options;
    let { text } = event;
    let abort = false;
    const read = (answer: unknown, pluginId: string) => {
      const transform = readStreamTransform(answer, text, pluginId);
      text = transform.chunk;
      for (const reasoning of transform.reasoning)
        this.#pass({ type: "reasoning_delta", blockId: `${blockId}:${pluginId}`, text: reasoning });
      for (const event of transform.events) this.#options.emit({ type: "plugin_event", pluginId, event });
      abort ||= transform.abortStream;
    };
    const told = (final: boolean) => ({ ...facts, blockId, chunk: text, final });
    if (ends) {
      this.#open.delete(blockId);
      await hooks.askFinal(told, read, { signal });
    } else {
      if (hooks.hasFinal) this.#open.add(blockId);
      await hooks.each("assistant_stream", () => told(false), read, { signal });
    }
    if (text !== "") this.#pass({ type: "text_delta", blockId, text });
    if (abort) {
      this.#aborted = true;
      this.#stop?.abort();
    }
  }

  #pass(event: ModelEvent): void {
    if (event.type === "text" && event.text === "") return;
    if (event.type === "part" || event.type === "file") {
      const part = event.type === "part" ? event.part : this.#options.keepFile(event);
      this.response.add({ type: "part", part });
      this.#options.emit({ type: "answer_part", part });
      return;
    }
    if (event.type === "tool_input_delta") {
      const callId = this.response.callIdOf(event.callId);
      if (this.#options.isShown?.() === true) this.#options.emit({ ...event, callId });
      return;
    }
    this.response.add(event);
    // The metadata is the provider's own: a host is told the text alone.
    if (event.type === "text") this.#options.emit({ type: "text_delta", blockId: event.blockId, text: event.text });
    else if (event.type === "text_delta" || event.type === "reasoning_delta") {
      const { type, blockId, text } = event;
      this.#options.emit({ type, blockId, text });
    }
  }

  /** What prose that was not streamed becomes. Empty text is not worth a projector's while. */
  async #project(text: string): Promise<string> {
    const { hooks, facts, signal } = this.#options;
    if (text === "") return text;
    try {
      const projected = await hooks.only("assistant_prose_projector", { ...facts, text }, { signal }, readProse);
      return typeof projected === "string" ? projected : text;
    } catch (error) {
      const cause = asTroupeError(error, "hook_failed");
      throw new TroupeError("plugin_prose_projector", `The prose projector failed: ${cause.message}`, { cause });
    }
  }
}

function readProse(answer: unknown): string | undefined {
  if (answer === undefined || answer === null) return undefined;
  if (typeof answer === "string") return answer;
  throw unfitProjection("A prose projector returns a string or nothing");
}

/** What a projector answered is no answer of its kind. */
export function unfitProjection(why: string): TroupeError {
  return new TroupeError("invalid_hook_answer", `${why}.`);
}

interface StreamPumpOptions {
  readonly hooks: Pick<SessionHooks, "has" | "each" | "only" | "hasFinal" | "askFinal">;
  readonly facts: Omit<HookFacts["assistant_stream"], "blockId" | "chunk" | "final">;
  /** The turn's signal: a hook nobody waits for any more is not waited for. */
  readonly signal: AbortSignal;
  readonly emit: (activity: UntimedActivity) => void;
  /** Does anybody look? Arguments that are still being written are for them alone. */
  readonly isShown?: (() => boolean) | undefined;
  /** Keeps the bytes of a file the model made, and names them. */
  readonly keepFile: (file: FileEvent) => AttachmentPart;
  /** The ids that the provider gave to calls the turn has made before. */
  readonly earlierCalls?: () => Iterable<string>;
  /** An id for a call that no other has. Default: the provider's. */
  readonly newCallId?: () => string;
}
