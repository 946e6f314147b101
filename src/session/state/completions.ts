import { type Deferred, deferred, ignore, onAbort } from "../../async/index.js";
import {
  type ApprovalVerdict,
  answerUnusable,
  completionKeyOf,
  type Json,
  type ToolCall,
  type ToolOutput,
  toolFailure,
} from "../../kernel/index.js";
import type { PendingTool, TurnFacts } from "../../plugin/index.js";
import type { AnswerKind } from "../../store/index.js";
import type { ToolNote } from "../../tools/index.js";
import type { Deadlines } from "../../wire/index.js";

/** An answer from outside: what a call came to, or whether it may run. */
export type PendingAnswer = ToolOutput | ApprovalVerdict;

/** The calls of a step while they run. */
interface RunningCalls {
  readonly facts: Pick<TurnFacts, "sessionId" | "turnId">;
  readonly calls: readonly Pick<ToolCall, "callId">[];
  /** How many of them have not ended. Default: all. */
  readonly open?: () => number;
  /** One of them says something before it answers. */
  readonly onNote?: (callId: string, note: ToolNote) => void;
}

/** What a yes to a call may come with. */
export interface Editing {
  readonly allowed: boolean;
  /** Why other arguments cannot be used. */
  readonly problemWith: (args: Json) => Promise<string | undefined>;
}

interface WaitingCall {
  readonly toolName: string;
  /** Only of a call that waits for a yes. */
  readonly editing: Editing | undefined;
  readonly end: (answer: PendingAnswer) => void;
}

/** Keys of which it is known that they were answered. */
const MAX_ANSWERED = 256;

/**
 * Keeps an answer, and says which one counts, when it is not this one. It asks before it writes whether a call still waits
 * for it.
 */
type Keep = (waits: () => boolean) => Promise<PendingAnswer | undefined>;

/**
 * Tool calls of a session whose answer comes from outside, by completion key. What most sessions never have is made with
 * the first of its kind: sessions are many.
 */
export class Completions {
  readonly #running = new Set<RunningCalls>();
  readonly #waiting = new Map<string, WaitingCall>();
  /** Ends of running calls: of those that waited, and answers that came before their tool said that it waits. */
  readonly #ended = new Map<string, PendingAnswer>();
  /** Calls of a turn that is yet to be taken up again, and who waits for them to wait. */
  #expected: Map<string, AnswerKind> | undefined;
  #arrivals: Map<string, Deferred<void>> | undefined;
  /** Keys whose answer is being kept. */
  #answering: Map<string, Promise<unknown>> | undefined;
  /** Those that were answered last. */
  #answered: Set<string> | undefined;
  readonly #deadlines: Deadlines;

  constructor(deadlines: Deadlines) {
    this.#deadlines = deadlines;
  }

  /** From now on these calls may be answered: whoever a tool told its key may be quicker than the tool. */
  begin(calls: RunningCalls): void {
    this.#running.add(calls);
  }

  end(calls: RunningCalls): void {
    this.#running.delete(calls);
    if (this.#ended.size > 0) for (const key of keysOf(calls)) this.#ended.delete(key);
  }

  /** A running call said something; what is said of a call that does not run is told nobody. */
  noted({ turnId, callId }: { readonly turnId: string; readonly callId: string }, note: ToolNote): void {
    for (const { facts, calls, onNote } of this.#running)
      if (facts.turnId === turnId && calls.some((call) => call.callId === callId)) onNote?.(callId, note);
  }

  /** Waits for the answer, the deadline or the turn's abort, whichever comes first. Never rejects. */
  wait(
    key: string,
    {
      toolName,
      pending: { deadlineMs, onTimeout, onCancel },
      leftMs = deadlineMs,
      editing,
      signal,
    }: {
      readonly toolName: string;
      readonly pending: PendingTool;
      /** What is left of its deadline. Default: all. */
      readonly leftMs?: number | undefined;
      /** The answer is whether the call may run. */
      readonly editing?: Editing;
      readonly signal: AbortSignal;
    },
  ): Promise<PendingAnswer> {
    this.#expected?.delete(key);
    const early = this.#ended.get(key);
    if (early !== undefined) {
      this.#arrived(key);
      return Promise.resolve(early);
    }
    // A model that names two calls of a step alike would leave the first waiting for ever.
    if (this.#waiting.has(key)) return Promise.resolve(taken(toolName));
    return new Promise((resolve) => {
      let letGo = ignore;
      const end = (answer: PendingAnswer) => {
        this.#waiting.delete(key);
        this.#ended.set(key, answer);
        if (deadline !== undefined) this.#deadlines.cancel(deadline);
        letGo();
        resolve(answer);
      };
      const asked = editing === undefined ? "completed" : "approved";
      const endsTurn = onTimeout === "fail_turn";
      const late = () => end(timeout({ toolName, asked, deadlineMs: deadlineMs as number, endsTurn }));
      const deadline = leftMs === undefined ? undefined : this.#deadlines.add(leftMs, late);
      this.#waiting.set(key, { toolName, editing, end });
      if (onCancel !== "wait") letGo = onAbort(signal, () => end(cancelled(toolName)));
      this.#arrived(key);
    });
  }

  /** Calls are under way, all of them wait, and none has been answered just now. */
  get onlyWaits(): boolean {
    if (this.#waiting.size === 0 || (this.#answering?.size ?? 0) > 0) return false;
    let open = 0;
    for (const running of this.#running) open += running.open?.() ?? running.calls.length;
    return open === this.#waiting.size;
  }

  isAnswered(key: string): boolean {
    return this.#answered?.has(key) === true;
  }

  /** Somebody has answered it, or is about to. */
  isTaken(key: string): boolean {
    return this.isAnswered(key) || this.#answering?.has(key) === true;
  }

  /** The waiting under a key of its own is over: nobody asks for its end again. */
  forget(key: string): void {
    this.#ended.delete(key);
  }

  /** A call will wait under this key: it did before a crash. */
  expect(key: string, kind: AnswerKind): void {
    this.#expected ??= new Map();
    this.#expected.set(key, kind);
  }

  /** The turn is over: what it had not come to wait for, it will not. */
  turnEnded(): void {
    this.#expected = undefined;
    for (const key of [...(this.#arrivals?.keys() ?? [])]) this.#arrived(key);
  }

  /** Gives the answer, once it is kept; the first one counts. Undefined when no call waits under the key. */
  async complete(key: string, given: PendingAnswer, keep?: Keep): Promise<"counted" | "already_answered" | undefined> {
    // Who comes second is told so when it is known that the first one counts.
    this.#answering ??= new Map();
    const answering = this.#answering;
    for (let first = answering.get(key); first !== undefined; first = answering.get(key)) await first.catch(ignore);
    const answered = this.#answer(key, given, keep);
    answering.set(key, answered);
    try {
      return await answered;
    } finally {
      answering.delete(key);
    }
  }

  async #answer(key: string, given: PendingAnswer, keep: Keep | undefined) {
    const edited = "approved" in given && given.approved ? given.args : undefined;
    if (edited !== undefined) await this.#checkEdited(key, edited);
    const kind = this.#kindOf(key);
    if (kind === undefined) return this.isAnswered(key) ? "already_answered" : undefined;
    checkKind(kind, given);
    return this.#keep(key, given, keep);
  }

  async #keep(key: string, given: PendingAnswer, keep: Keep | undefined) {
    const before = await keep?.(() => this.#kindOf(key) !== undefined);
    if (this.#kindOf(key) === undefined) return undefined;
    const answer = before ?? given;
    this.#note(key);
    const waiting = this.#waiting.get(key);
    if (waiting === undefined) this.#ended.set(key, answer);
    else waiting.end(answer);
    return before === undefined ? "counted" : "already_answered";
  }

  #note(key: string): void {
    this.#answered ??= new Set();
    this.#answered.add(key);
    for (const oldest of this.#answered) {
      if (this.#answered.size <= MAX_ANSWERED) break;
      this.#answered.delete(oldest);
    }
  }

  /** Of a turn that is being taken up, when the call has come to wait again: before, nobody knows its tool. */
  async #checkEdited(key: string, args: Json): Promise<void> {
    if (this.#expected?.get(key) === "verdict") {
      this.#arrivals ??= new Map();
      const arrival = this.#arrivals.get(key) ?? deferred();
      this.#arrivals.set(key, arrival);
      await arrival.promise;
    }
    const { editing, toolName } = this.#waiting.get(key) ?? {};
    if (editing === undefined) return;
    if (!editing.allowed)
      throw answerUnusable(
        `the arguments of ${toolName} cannot be changed: who asked for the approval did not allow it`,
      );
    const problem = await editing.problemWith(args);
    if (problem !== undefined) throw answerUnusable(problem);
  }

  #arrived(key: string): void {
    this.#arrivals?.get(key)?.resolve();
    this.#arrivals?.delete(key);
  }

  /** Which answer is waited for under a key; undefined when none is. */
  #kindOf(key: string): AnswerKind | undefined {
    const waiting = this.#waiting.get(key);
    if (waiting !== undefined) return waiting.editing === undefined ? "output" : "verdict";
    if (this.#ended.has(key)) return undefined;
    const expected = this.#expected?.get(key);
    if (expected !== undefined) return expected;
    return [...this.#running].some((calls) => keysOf(calls).includes(key)) ? "output" : undefined;
  }

  /** Nobody will answer any more: the runtime closes. Also ends the waiting of calls that a cancelled turn waits for. */
  close(): void {
    for (const { toolName, end } of [...this.#waiting.values()]) end(cancelled(toolName));
  }
}

function checkKind(kind: AnswerKind, given: PendingAnswer): void {
  const isVerdict = "approved" in given;
  if (isVerdict && kind === "output")
    throw answerUnusable(
      "the call does not wait for a yes or no, but for its result: give it with troupe.completeTool",
    );
  if (!isVerdict && kind === "verdict")
    throw answerUnusable(
      "the call waits for a yes or no, and its tool runs behind a yes: answer it with troupe.approve or troupe.deny",
    );
}

function keysOf({ facts, calls }: RunningCalls): string[] {
  return calls.map(({ callId }) => completionKeyOf(facts.sessionId, facts.turnId, callId));
}

function cancelled(toolName: string): ToolOutput {
  return { status: "cancelled", message: `The call of ${toolName} was cancelled.` };
}

function taken(toolName: string): ToolOutput {
  const message = `Another call with the id of this call of ${toolName} already waits for its answer.`;
  return toolFailure("invalid_request", "completion_key_taken", message);
}

interface Late {
  readonly toolName: string;
  readonly asked: "completed" | "approved";
  readonly deadlineMs: number;
  readonly endsTurn: boolean;
}

function timeout({ toolName, asked, deadlineMs, endsTurn }: Late): ToolOutput {
  const message = `${toolName} was not ${asked} within ${deadlineMs} ms.`;
  const failure = { kind: "timeout", code: "tool_completion_timeout", message } as const;
  return { status: "failure", failure: endsTurn ? { ...failure, endsTurn } : failure };
}
