import { type Clock, onAbort } from "../../async/index.js";
import type { HookFacts, HookKind } from "../../plugin/index.js";
import { encodeError, type ServedCall, type StageWriter } from "../../wire/index.js";
import { tooLarge } from "./answer-size.js";
import {
  type CaptureMode,
  type HookLane,
  hookOf,
  RUN_WIDTH,
  type RunAnswer,
  type RunCall,
  unpackFacts,
} from "./plugin-calls.js";
import type { PluginInstance, Waiting } from "./plugin-instance.js";

/** A hook of a run as host services know it: by the run's call, and its place there. */
export class WaitingInRun implements Waiting {
  readonly #call: ServedCall;
  readonly at: number;

  constructor(call: ServedCall, at: number) {
    this.#call = call;
    this.at = at;
  }

  get id(): number {
    return this.#call.id;
  }

  get signal(): AbortSignal {
    return this.#call.signal;
  }
}

interface RunParts {
  /** The lane's number. */
  readonly lane: number;
  readonly clock: Clock;
  readonly stage: Pick<StageWriter, "next" | "leave"> & { enterAgain(call: number): void; judge(): void };
  /** The instance of a session's slot, and its plugin's place in the group. */
  readonly opened: (slot: number) => {
    readonly instance: PluginInstance;
    readonly member: number;
    readonly sessionId: string;
  };
  /** What a hook answers, with its state when that is wanted. */
  readonly finished: (slot: number, capture: CaptureMode, value: unknown) => unknown;
  /** The call is about to be answered, and hooks of these slots may have changed their state. */
  readonly changed: (call: ServedCall, slots: readonly number[]) => void;
}

/** Serves runs of hooks, which several plugins of a group have for one session, for the calls of one lane. */
export class HookRuns {
  readonly #parts: RunParts;
  /** Runs that were answered before their last hook was, by call. */
  readonly #unfinished = new Map<number, Run>();

  constructor(parts: RunParts) {
    this.#parts = parts;
  }

  run(payload: RunCall, call: ServedCall): RunAnswer | Promise<RunAnswer> {
    const run = new Run(this.#parts, payload, call);
    run.goOn();
    if (run.isOver) return run.answer();
    return new Promise((resolve) => {
      run.onOver = () => resolve(run.answer());
      // Hooks that are asynchronous by their declaration only have answered once all that is ready to run has run.
      this.#whenAllHasRun(() => {
        if (run.isOver) return;
        this.#unfinished.set(call.id, run);
        resolve(run.answerSoFar());
      });
    });
  }

  /** The hook a run was at; undefined when there is no such run here. */
  rest([, lane, id]: HookLane["rest"]["call"], call: ServedCall): Promise<unknown> | undefined {
    const run = lane === this.#parts.lane ? this.#unfinished.get(id) : undefined;
    if (run === undefined) return undefined;
    this.#unfinished.delete(id);
    onAbort(call.signal, () => run.call.cancel());
    run.isChanging(call);
    return run.rest();
  }

  /** Nobody waits for the run any more. */
  drop(id: number): void {
    this.#unfinished.get(id)?.call.cancel();
    this.#unfinished.delete(id);
  }

  #whenAllHasRun(then: () => void): void {
    void Promise.resolve().then(() => this.#parts.clock.nextTick(then));
  }
}

class Run {
  readonly call: ServedCall;
  isOver = false;
  /** Told when the run is over, unless it was answered by then. */
  onOver: (() => void) | undefined;
  readonly #parts: RunParts;
  readonly #payload: RunCall;
  readonly #count: number;
  /** Of one kind are all of them. */
  readonly #kind: HookKind;
  readonly #times: number[] = [];
  readonly #answers: unknown[] = [];
  #answered = false;
  #failure: { readonly error: unknown } | undefined;
  /** Its answer has left: the hook it is at is answered on its own, and no other is begun. */
  #isAnswered = false;
  #rest: Promise<unknown> | undefined;
  /** What the answers so far made of the fact that flows from hook to hook. */
  #flowing: { readonly value: unknown } | undefined;

  constructor(parts: RunParts, payload: RunCall, call: ServedCall) {
    this.#parts = parts;
    this.#payload = payload;
    this.#count = payload[0].length / RUN_WIDTH;
    this.#kind = hookOf(payload[0][1] as number).kind;
    this.call = call;
  }

  /** Makes the calls that are left, as far as their answers are at hand. */
  goOn(): void {
    const { clock } = this.#parts;
    while (!this.isOver) {
      const at = this.#times.length;
      if (at === this.#count) {
        this.isOver = true;
        return;
      }
      const started = clock.now();
      let value: unknown;
      try {
        value = this.#make(at);
        this.#parts.stage.judge();
        if (isThenable(value)) {
          this.#wait(at, started, value);
          return;
        }
        value = this.#finished(at, value);
      } catch (error) {
        this.#fail(error);
        return;
      }
      this.#take(at, value, started);
    }
  }

  answer(): RunAnswer {
    this.isChanging(this.call);
    const failure = this.#failure === undefined ? 0 : encodeError(this.#failure.error);
    return [this.#times, this.#answered ? this.#answers : 0, failure, 0];
  }

  answerSoFar(): RunAnswer {
    this.#isAnswered = true;
    this.#changes(this.call, this.#times.length);
    return [this.#times, this.#answered ? this.#answers : 0, 0, [this.#parts.lane, this.call.id]];
  }

  rest(): Promise<unknown> {
    return this.#rest as Promise<unknown>;
  }

  /** The hooks up to the one it is at may have changed their state. */
  isChanging(call: ServedCall): void {
    this.#changes(call, this.#times.length + 1);
  }

  #changes(call: ServedCall, hooks: number): void {
    const slots: number[] = [];
    for (let at = 0; at < hooks && at < this.#count; at++) slots.push(this.#slotAt(at));
    this.#parts.changed(call, slots);
  }

  #slotAt(at: number): number {
    return this.#payload[0][at * RUN_WIDTH] as number;
  }

  #captureAt(at: number): CaptureMode {
    return this.#payload[0][at * RUN_WIDTH + 2] as CaptureMode;
  }

  #make(at: number): unknown {
    const { stage, opened } = this.#parts;
    const { instance, member, sessionId } = opened(this.#slotAt(at));
    stage.next(member);
    const fill = (context: object) => {
      unpackFacts(context, this.#kind, sessionId, this.#payload, 1);
      if (this.#flowing !== undefined)
        (context as Record<string, unknown>)[FLOWING[this.#kind] as string] = copyOf(this.#flowing.value);
      // What one plugin does to what it is told is not what the next one is told.
      if (at < this.#count - 1) copyFacts(context as Record<string, unknown>);
    };
    const hook = hookOf(this.#payload[0][at * RUN_WIDTH + 1] as number);
    return instance.hook(hook, fill, new WaitingInRun(this.call, at));
  }

  #finished(at: number, value: unknown): unknown {
    // Too much of one plugin fails its own hook, and not what the others of the run have answered.
    const refusal = tooLarge(value, "The plugin's answer");
    if (refusal !== undefined) throw refusal;
    const capture = this.#captureAt(at);
    return capture === 0 ? value : this.#parts.finished(this.#slotAt(at), capture, value);
  }

  #wait(at: number, started: number, value: PromiseLike<unknown>): void {
    const rest = Promise.resolve(value).then((settled) => this.#finished(at, settled));
    this.#rest = rest;
    rest.then(
      (settled) => this.#settled(() => this.#take(at, settled, started)),
      (error: unknown) => this.#settled(() => this.#fail(error)),
    );
  }

  #settled(take: () => void): void {
    if (this.#isAnswered) return;
    const { stage } = this.#parts;
    take();
    if (!this.isOver) {
      stage.enterAgain(this.call.id);
      try {
        this.goOn();
      } finally {
        stage.leave();
      }
    }
    if (this.isOver) this.onOver?.();
  }

  #take(at: number, answer: unknown, started: number): void {
    this.#times.push(this.#parts.clock.now() - started);
    this.#answers.push(answer);
    if (answer === undefined || answer === null) return;
    this.#answered = true;
    const value = this.#captureAt(at) === 0 ? answer : (answer as { readonly value: unknown }).value;
    if (value === undefined || value === null) return;
    if (endsRun(this.#kind, value)) this.isOver = true;
    else this.#flow(this.#kind, value);
  }

  #flow(kind: HookKind, value: unknown): void {
    const fact = FLOWING[kind];
    if (fact === undefined) return;
    const next = typeof value === "string" ? value : (value as Record<string, unknown>)[fact];
    if (next !== undefined && next !== null) this.#flowing = { value: next };
  }

  #fail(error: unknown): void {
    this.#failure = { error };
    this.isOver = true;
  }
}

/** The fact that each hook of these kinds gets as the one before it left it. */
const FLOWING: { readonly [K in HookKind]?: keyof HookFacts[K] } = {
  assistant_stream: "chunk",
  assistant_response: "response",
};

/** Does what the next hook is told depend on more than this answer? */
function endsRun(kind: HookKind, value: unknown): boolean {
  if (kind === "context_transform") return true;
  if (kind !== "before_tool_call" && kind !== "after_tool_call") return false;
  const directives: readonly unknown[] = Array.isArray(value) ? value : [value];
  return directives.some((directive) => REPLACES.includes((directive as { kind?: unknown } | null)?.kind));
}

/** The hooks before one that replaces arguments or a result are asked about the new ones first. */
const REPLACES: readonly unknown[] = ["replace_tool_args", "short_circuit_tool"];

function copyFacts(context: Record<string, unknown>): void {
  for (const fact of Object.keys(context)) {
    if (fact === "state" || fact === "options") continue;
    const value = context[fact];
    if (typeof value === "object" && value !== null) context[fact] = copyOf(value);
  }
}

function copyOf(value: unknown): unknown {
  if (typeof value !== "object" || value === null) return value;
  if (Array.isArray(value)) return value.map(copyOf);
  if (Object.getPrototypeOf(value) !== Object.prototype) return structuredClone(value);
  const copy: Record<string, unknown> = {};
  for (const key of Object.keys(value)) copy[key] = copyOf((value as Record<string, unknown>)[key]);
  return copy;
}

function isThenable(value: unknown): value is PromiseLike<unknown> {
  return typeof value === "object" && value !== null && typeof (value as { then?: unknown }).then === "function";
}
