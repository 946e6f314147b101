import {
  type Activity,
  asTroupeError,
  type ModelEvent,
  ResponseBuilder,
  TroupeError,
  type Usage,
} from "../../kernel/index.js";
import type { HookFacts } from "../../plugin/index.js";
import { readStreamTransform, type SessionHooks } from "../plugins/index.js";

/**
 * One model call's stream on its way to the response and the host. Without stream hooks every event passes at once.
 * With them, text goes through the chain of hooks; while a chunk is away the following ones of its block join, so a
 * slow plugin slows nothing but itself. Order is kept: what comes behind a waiting chunk waits behind it. Text that was
 * not streamed is no business of stream hooks: it goes through the prose projector, whole.
 */
export class StreamPump {
  readonly response = new ResponseBuilder();
  readonly #options: StreamPumpOptions;
  /** Only a hook that sees the text can end a model call without ending the turn. */
  readonly #stop: AbortController | undefined;
  #queue: ModelEvent[] = [];
  /** Not the promise: a pump that met no text is over before its promise could be kept. */
  #busy = false;
  #pumping: Promise<void> | undefined;
  #failure: TroupeError | undefined;
  #aborted = false;
  #cost: Usage | undefined;

  constructor(options: StreamPumpOptions) {
    this.#options = options;
    const { hooks } = options;
    const hooked = hooks.has("assistant_stream") || hooks.has("assistant_prose_projector");
    this.#stop = hooked ? new AbortController() : undefined;
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
        if (event.type === "text_delta" && event.text !== "") await this.#transform(event);
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

  async #transform(event: Extract<ModelEvent, { type: "text_delta" }>): Promise<void> {
    let { text } = event;
    const { blockId } = event;
    let abort = false;
    await this.#options.hooks.each(
      "assistant_stream",
      () => ({ ...this.#options.facts, blockId, chunk: text }),
      (answer, pluginId) => {
        const transform = readStreamTransform(answer, text, pluginId);
        text = transform.chunk;
        for (const reasoning of transform.reasoning)
          this.#pass({ type: "reasoning_delta", blockId: `${blockId}:${pluginId}`, text: reasoning });
        for (const event of transform.events) this.#options.emit({ type: "plugin_event", pluginId, event });
        abort ||= transform.abortStream;
      },
      { signal: this.#options.signal },
    );
    if (text !== "") this.#pass({ type: "text_delta", blockId, text });
    if (abort) {
      this.#aborted = true;
      this.#stop?.abort();
    }
  }

  #pass(event: ModelEvent): void {
    if (event.type === "text" && event.text === "") return;
    this.response.add(event);
    if (event.type === "text") this.#options.emit({ ...event, type: "text_delta" });
    else if (event.type === "text_delta" || event.type === "reasoning_delta") this.#options.emit(event);
  }

  /** What prose that was not streamed becomes. Empty text is not worth a projector's while. */
  async #project(text: string): Promise<string> {
    const { hooks, facts, signal } = this.#options;
    if (text === "") return text;
    try {
      const projected = await hooks.only("assistant_prose_projector", { ...facts, text }, { signal });
      if (projected === undefined || projected === null) return text;
      if (typeof projected === "string") return projected;
      throw new TroupeError("invalid_hook_answer", "A prose projector returns a string or nothing.");
    } catch (error) {
      const cause = asTroupeError(error, "hook_failed");
      throw new TroupeError("plugin_prose_projector", `The prose projector failed: ${cause.message}`, { cause });
    }
  }
}

interface StreamPumpOptions {
  readonly hooks: Pick<SessionHooks, "has" | "each" | "only">;
  readonly facts: Omit<HookFacts["assistant_stream"], "blockId" | "chunk">;
  /** The turn's signal: a hook nobody waits for any more is not waited for. */
  readonly signal: AbortSignal;
  readonly emit: (activity: Activity) => void;
}
