import { ignore, loopTurn } from "../../async/index.js";
import { type Activity, admitInput, checkSessionId, checkTurnInput, definedOnly } from "../../kernel/index.js";
import type { PayerAnswer, RelayAnswers, RelayCall, UsageNote } from "../../session/index.js";
import { type Residence, type Runtime, underWay } from "../places/index.js";
import { ChildTurns, type Turns } from "../turns/index.js";
import { childId, makeSession } from "./fork.js";
import { TenantBudgets } from "./tenant-budgets.js";

/** Something that happened in a turn that one session started in another one. */
export interface ChildActivity {
  readonly sessionId: string;
  readonly turnId: string;
  readonly activity: Activity;
}

/** `line`: who had the turn run, the nearest first. */
type ChildActivityListener = (line: readonly string[], happened: ChildActivity) => void;

/** Answers what is asked of processes and monitors. */
type OutsideAnswers = (ask: Parameters<RelayAnswers["outside"]>[0]) => Promise<unknown>;

/** What sessions ask of other sessions; whether they may was checked where they are. */
export class Relay {
  /** What tenants may spend, whichever sessions ask. */
  readonly tenants: TenantBudgets;
  readonly #runtime: Runtime;
  readonly #turns: Turns;
  readonly #onChildActivity: ChildActivityListener;
  readonly #outside: OutsideAnswers;
  readonly childTurns = new ChildTurns();
  /** Under which name a session's usage stands in its creator's ledger. */
  readonly #usageSources = new Map<string, string>();

  constructor(
    runtime: Runtime,
    turns: Turns,
    { onChildActivity, outside }: { readonly onChildActivity: ChildActivityListener; readonly outside: OutsideAnswers },
  ) {
    this.#runtime = runtime;
    this.#turns = turns;
    this.tenants = new TenantBudgets(runtime);
    this.#onChildActivity = onChildActivity;
    this.#outside = outside;
  }

  async answer<M extends keyof RelayAnswers>([method, argument]: RelayCall<M>): Promise<unknown> {
    return this.#answers[method](argument);
  }

  /** A session is gone. */
  forget(sessionId: string): void {
    this.#usageSources.delete(sessionId);
  }

  #childListener(sessionId: string): (activity: Activity) => void {
    let line: readonly string[] | undefined;
    let turnId = "";
    return (activity) => {
      line ??= this.childTurns.lineOf(sessionId);
      if (activity.type === "turn_started") turnId = activity.turnId;
      this.#onChildActivity(line, { sessionId, turnId, activity });
    };
  }

  /** Tells a session what was spent for it. */
  #bill(note: UsageNote): void {
    const [payerId] = note;
    const { directory } = this.#runtime;
    const bill = async ({ worker: index }: Residence) => {
      const worker = this.#runtime.worker(index);
      // One that is being replaced is told when it is there again.
      if (worker.lane !== undefined) worker.lane.note("usage", note);
      else await worker.ready().then((lane) => lane.note("usage", note), ignore);
    };
    const payer = directory.find(payerId);
    if (payer?.moving !== undefined && !payer.closing) directory.use(payerId, bill).catch(ignore);
    else if (payer !== undefined) void bill(payer);
  }

  /** Asks all for whom a session's turn runs, the nearest first; those that let the call in are told when another does not. */
  async #admit({ sessionId, call, waits }: Parameters<RelayAnswers["payersAdmit"]>[0]): Promise<PayerAnswer> {
    const line = this.childTurns.limiting(sessionId);
    for (const [place, turn] of line.entries()) {
      if (turn.ended) continue;
      turn.calls.add(call);
      // Of a payer that is gone, or cannot answer, there is no budget to keep to.
      const answer: PayerAnswer = await this.#runtime
        .ask("admitChild", { sessionId: turn.from, call, waits })
        .catch(() => ({ kind: "go" }) as const);
      if (answer.kind === "go") continue;
      for (const { from, calls } of line.slice(0, place + 1))
        if (calls.delete(call)) this.#bill([from, undefined, call]);
      return answer;
    }
    return { kind: "go" };
  }

  readonly #answers: RelayAnswers = {
    create: async ({ from, request, budget }) => {
      const { directory } = this.#runtime;
      this.#runtime.checkOpen();
      const { sessionId: id = childId(from, this.#runtime.options.clock), usageSource, start, ...asked } = request;
      const making = { ...asked, ...(budget && { budget }) };
      checkSessionId(id);
      // The session that asks is in the middle of a call and so cannot be closed: it is not waited for.
      const { made } =
        start?.kind === "existing_session"
          ? await directory.use(start.sessionId, (source) =>
              makeSession(this.#runtime, { id, making: { ...making, start, createdBy: from }, from: source }),
            )
          : await makeSession(this.#runtime, {
              id,
              making: { ...making, ...(start && { start }) },
              from: directory.of(from),
            });
      if (usageSource !== undefined) this.#usageSources.set(id, usageSource);
      return made;
    },
    close: async ({ sessionId }) => {
      const { directory } = this.#runtime;
      if (directory.isBusy(sessionId)) throw underWay(sessionId);
      let isOpen = false;
      await directory.moveOut(sessionId, async (worker) => {
        isOpen = true;
        await this.#runtime.worker(worker).ask("releaseIdle", { sessionId });
        await this.#runtime.left(sessionId);
      });
      // Its work may go on without it: what the store had going on when this runtime started.
      if (!isOpen) await this.#runtime.left(sessionId);
      this.forget(sessionId);
    },
    startTurn: async ({ from, sessionId, text, turnId, key, streams, limited }) => {
      this.#runtime.checkOpen();
      // What a program asks for is refused at the call; only a host's turn is recorded.
      const input = checkTurnInput(text);
      admitInput(input, this.#runtime.options.worker.attachments);
      const source = this.#usageSources.get(sessionId) ?? "child";
      const started = this.childTurns.start({
        from,
        sessionId,
        turnId,
        streams,
        key,
        limited,
        start: (isLimited) =>
          this.#turns.ask(sessionId, input, definedOnly({ key, limited: isLimited ? true : undefined })),
        onActivity: this.#childListener(sessionId),
        onUsage: (model, usage) => this.#bill([from, { source, model, usage }]),
        onCallEnded: (call) => this.#bill([from, undefined, call]),
      });
      return { turnId: started, sessionId };
    },
    tenantAdmit: (ask) => this.tenants.admit(ask),
    tenantPaid: async (told) => this.tenants.paid(told),
    tenantEnded: async (told) => this.tenants.ended(told),
    tenantCommits: (told) => this.tenants.committing(told),
    payersAdmit: (ask) => this.#admit(ask),
    payersLeft: async ({ sessionId, call }) => {
      // Behind the activities that came before it: whoever reads those bills what it cost.
      await loopTurn(this.#runtime.options.clock);
      const turn = this.childTurns.limiting(sessionId)[0];
      if (turn?.calls.delete(call)) this.#bill([turn.from, undefined, call]);
    },
    outside: (ask) => this.#outside(ask),
    awaitTurn: (turn) => this.childTurns.result(turn),
    cancelTurn: async (turn) => this.childTurns.cancel(turn),
    turnEvents: (turn) => this.childTurns.events(turn),
    ask: ({ sessionId, ...call }) =>
      this.#runtime.directory.use(sessionId, ({ worker }) =>
        this.#runtime.worker(worker).ask("hostCall", { sessionId, ...call }),
      ),
  };
}
