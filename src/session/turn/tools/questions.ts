import {
  type Approval,
  type ApprovalDemand,
  type ApprovalVerdict,
  canonicalJson,
  type Json,
  type Owned,
  oneApproval,
  type PendingCall,
  problemWithDemand,
  type ToolCall,
  type ToolOutput,
  type TurnDirective,
  toolFailure,
} from "../../../kernel/index.js";
import { APPROVAL } from "../../../store/index.js";
import { executeTool, type RegisteredTool } from "../../../tools/index.js";
import { contentHash } from "../../../wire/index.js";
import type { Turn } from "../turn.js";
import type { BatchHooks, Inspected } from "./batch-hooks.js";
import { ofTool, recordedOfAnother } from "./tool-outputs.js";
import { answerBefore, answerFromOutside, rowsOfWaiting, waitingCall, withdraw } from "./waiting.js";

/** A call that may run, or whose result is decided; with a question, only when somebody says yes. */
export interface Prepared {
  readonly call: ToolCall;
  readonly decided: ToolOutput | undefined;
  readonly question?: Question;
}

/** What somebody is asked before a call runs. */
interface Question extends Approval {
  /** The last part of its key. */
  readonly id: string;
  /** How often somebody was asked about the call, this time included. */
  readonly round: number;
  readonly since: number;
  /** Of the arguments that are shown: a yes is for these. */
  readonly hash: string;
}

/** A question as the journal has it, with all that the hooks made of the call: none of them is asked again. */
interface Recorded {
  readonly args: Json;
  readonly decided?: ToolOutput;
  readonly said: readonly Owned<TurnDirective>[];
  readonly question?: Question;
}

interface QuestionsParts {
  readonly turn: Turn;
  readonly hooks: BatchHooks;
}

/** Whether the calls of a batch may run: what their hooks, their tools and people outside say. */
export class Questions {
  readonly #turn: Turn;
  readonly #hooks: BatchHooks;

  constructor({ turn, hooks }: QuestionsParts) {
    this.#turn = turn;
    this.#hooks = hooks;
  }

  /** Asks the hooks, and the tool itself; says what somebody is to be asked. */
  prepare(call: ToolCall): Prepared | Promise<Prepared> {
    if (this.#turn.journal.has(this.#keyOf(call, 1))) return this.#questioned(call, 1, neverRun);
    const inspected = this.#hooks.before(call);
    return inspected instanceof Promise
      ? inspected.then((later) => this.#mayRun(call, later))
      : this.#mayRun(call, inspected);
  }

  /** At once where nobody wants an approval. */
  #mayRun(call: ToolCall, inspected: Inspected): Prepared | Promise<Prepared> {
    const { decided, demands } = inspected;
    if (decided !== undefined && decided.status !== "success") return inspected;
    if (demands.length > 0 || this.#approvalOf(inspected) !== undefined) return this.#demanded(call, inspected);
    return inspected;
  }

  async #demanded(call: ToolCall, inspected: Inspected): Promise<Prepared> {
    const demands = await this.#demandsOf(inspected);
    if ("refused" in demands) return { call: inspected.call, decided: demands.refused };
    if (demands.all.length === 0) return inspected;
    return this.#pose(call, inspected, oneApproval(demands.all), 1);
  }

  /** What a tool that is to run says of approvals; undefined: nothing. */
  #approvalOf({ call, decided }: Inspected): RegisteredTool["approval"] {
    return decided === undefined ? this.#turn.catalog.get(call.toolName)?.approval : undefined;
  }

  /** The call when it may run, with the arguments it may run with. */
  async answered(prepared: Prepared): Promise<Prepared> {
    let { call, decided, question } = prepared;
    while (question !== undefined) {
      if (this.#hooks.aborted) {
        withdraw(this.#turn, this.#waiting(call, question).key);
        return { call, decided: undefined };
      }
      const answer = await this.#ask(call, question);
      if (!("approved" in answer)) return { call, decided: answer };
      if (!answer.approved) return { call, decided: denied(call, answer.reason) };
      const next = await this.#approved({ call, decided, question }, answer);
      ({ call, decided, question } = next as Prepared & { question: Question });
    }
    return { call, decided };
  }

  /** A yes is for the arguments that were shown, or for those it came with: other ones are asked about again. */
  async #approved(
    { call, decided, question }: Prepared & { readonly question: Question },
    { args = call.args }: Extract<ApprovalVerdict, { approved: true }>,
  ): Promise<Prepared> {
    const hash = hashOf(args);
    const edited = { ...call, args };
    const next = hash === question.hash ? { call, decided } : await this.#inspectEdited(edited, question);
    if (next.decided !== undefined && next.decided.status !== "success") return next;
    if (hashOf(next.call.args) !== hash) {
      const { id: _id, round, since: _since, hash: _hash, ...approval } = question;
      return this.#pose(edited, { ...next, said: [] }, approval, round + 1);
    }
    const { callId, toolName } = next.call;
    this.#turn.request.emit({ type: "tool_call_approved", callId, toolName, args: next.call.args });
    return next;
  }

  /** The hooks look at what somebody made of the arguments, once; that they want an approval is known. */
  async #inspectEdited(call: ToolCall, { round }: Question): Promise<Prepared> {
    const { session, journal } = this.#turn;
    const { callId, toolName, args } = call;
    if (!session.hooks.has("before_tool_call", toolName)) return { call, decided: undefined };
    const recorded = await journal.once<Recorded>({
      key: `${APPROVAL}${this.#turn.state.step}:${callId}:${round}:edited`,
      envelope: () => ({ toolName, args }),
      counts: ofTool(toolName),
      run: async () => recordedOf(await this.#hooks.before(call)),
      changes: () => session.hooks.pluginsWith("before_tool_call"),
      found: (found) => this.#again(found),
    });
    return { call: { ...call, args: recorded.args }, decided: recorded.decided };
  }

  /** What is asked, by whom; or why the call cannot be made at all. */
  async #demandsOf(
    inspected: Inspected,
  ): Promise<{ readonly all: readonly ApprovalDemand[] } | { readonly refused: ToolOutput }> {
    const { call, decided, demands } = inspected;
    const tool = this.#turn.catalog.get(call.toolName);
    const approval = this.#approvalOf(inspected);
    // What answers in its place needs no tool; who demanded an approval wants it all the same.
    if (tool === undefined || decided !== undefined || (approval === undefined && demands.length === 0))
      return { all: demands };
    const output = await this.#saidByTool(call);
    if (output.status !== "success") return { refused: output };
    const own = approval === "by_code" ? output.value : (approval ?? null);
    if (own === null) return { all: demands };
    const problem = problemWithDemand(own);
    if (problem === undefined) return { all: [...demands, own as ApprovalDemand] };
    return {
      refused: toolFailure("execution", "tool_answer_invalid", `The approval of ${call.toolName}: ${problem}.`),
    };
  }

  /** What the tool's own code says of a call before it runs. Its arguments are looked at in any case. */
  async #saidByTool(call: ToolCall): Promise<ToolOutput> {
    const { session, facts, catalog: registry } = this.#turn;
    const { sessionId, turnId } = facts;
    const { homes, checks, deadlines } = session.services;
    const { signal } = this.#hooks;
    const asked = { registry, homes, checks, deadlines, call, hidden: NOTHING_HIDDEN, sessionId, turnId, signal };
    return (await executeTool({ ...asked, asks: true })).output;
  }

  /** Asks somebody from now on: the question is written down with the row it is found by. */
  #pose(asked: ToolCall, inspected: Omit<Inspected, "demands">, approval: Approval, round: number): Promise<Prepared> {
    const { clock } = this.#turn.session.services;
    return this.#questioned(asked, round, () => ({
      ...recordedOf(inspected),
      question: {
        ...approval,
        id: `ask_${clock.uuid().replaceAll("-", "")}`,
        round,
        since: clock.wallNow(),
        hash: hashOf(inspected.call.args),
      },
    }));
  }

  async #questioned(asked: ToolCall, round: number, run: () => Recorded): Promise<Prepared> {
    const { toolName, args } = asked;
    const recorded = await this.#turn.journal.once<Recorded>({
      key: this.#keyOf(asked, round),
      envelope: () => ({ toolName, args }),
      counts: ofTool(toolName),
      otherwise: () => ({ args, said: [], decided: recordedOfAnother(toolName) }),
      run,
      changes: () => this.#changedBefore(toolName),
      rowsOf: ({ args, question }) =>
        rowsOfWaiting(this.#turn, this.#waiting({ ...asked, args }, question as Question)),
      found: ({ question, ...found }, since) =>
        this.#again({ ...found, ...(question && { question: { ...question, since } }) }),
    });
    const { decided, question } = recorded;
    return { call: { ...asked, args: recorded.args }, decided, ...(question && { question }) };
  }

  #again(found: Recorded): Recorded {
    this.#hooks.again(found.said);
    return found;
  }

  #changedBefore(toolName: string): readonly string[] {
    const { approval, home }: Partial<RegisteredTool> = this.#turn.catalog.get(toolName) ?? {};
    const hooked = this.#turn.session.hooks.pluginsWith("before_tool_call");
    return approval === "by_code" && home?.kind === "plugin" ? [...hooked, home.pluginId] : hooked;
  }

  #waiting(call: ToolCall, question: Question): PendingCall {
    return waitingCall(this.#turn, call, question);
  }

  async #ask(call: ToolCall, question: Question): Promise<ToolOutput | ApprovalVerdict> {
    const known = answerBefore(this.#turn, question.id);
    if (known !== undefined) return known;
    const { allowEdit = false, onDeadline } = question;
    const waiting = this.#waiting(call, question);
    const answer = await answerFromOutside(this.#turn, {
      waiting,
      pending: { onTimeout: onDeadline === "fail_turn" ? "fail_turn" : "fail_call" },
      editing: { allowed: allowEdit, problemWith: (args) => this.#problemWith({ ...call, args }) },
      signal: this.#hooks.signal,
    });
    this.#turn.session.completions.forget(waiting.key);
    return answer;
  }

  /** Why the tool would not take these arguments. */
  async #problemWith(call: ToolCall): Promise<string | undefined> {
    const output = await this.#saidByTool(call);
    if (output.status === "success") return undefined;
    return output.status === "failure" ? output.failure.message : output.message;
  }

  #keyOf({ callId }: ToolCall, round: number): string {
    return `${APPROVAL}${this.#turn.state.step}:${callId}:${round}`;
  }
}

/** What is done behind a row of the journal that is there. */
function neverRun(): never {
  throw new Error("A question that was recorded was asked again.");
}

function recordedOf({ call, decided, said }: Pick<Inspected, "call" | "decided" | "said">): Recorded {
  return { args: call.args, said, ...(decided && { decided }) };
}

/** Of what it says, whatever the order of its keys. */
function hashOf(args: Json): string {
  return contentHash(canonicalJson(args));
}

function denied({ toolName }: ToolCall, reason: string): ToolOutput {
  return toolFailure("permission_denied", "approval_denied", `The call of ${toolName} was not approved: ${reason}`);
}

const NOTHING_HIDDEN: ReadonlySet<string> = new Set();
