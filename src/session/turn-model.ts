import type { ModelResponse, ProtocolStep, TroupeError, TurnEvent, TurnIssue, Usage } from "../kernel/index.js";
import type { Model } from "../model/index.js";
import type { StreamEnd } from "../plugin/index.js";
import { haveAttachments } from "./blobs.js";
import type { TurnCatalog } from "./catalog.js";
import { issueOf } from "./issues.js";
import { callModel } from "./model-call.js";
import { promptFailed } from "./turn-context.js";
import { replayIssue, type TurnScope } from "./turn-scope.js";

/** The model calls of a turn. */
export class TurnModel {
  readonly #scope: TurnScope;
  readonly #model: Model;
  /** Of the last call. */
  latestUsage: Usage | undefined;

  constructor(scope: TurnScope, model: Model) {
    this.#scope = scope;
    this.#model = model;
  }

  /** Tools that changed since the last call are as they are now; when none did, there is nothing to wait for. */
  ask(step: number): TurnEvent | Promise<TurnEvent> {
    const why = this.#scope.session.spending.whySpent();
    if (why !== undefined) return this.#budgetSpent(step, why);
    try {
      const resolved = this.#scope.context.resolveCatalog();
      if (!(resolved instanceof Promise)) return this.#call(step, resolved);
      return resolved.then((catalog) => this.#call(step, catalog), promptFailed);
    } catch (error) {
      return promptFailed(error);
    }
  }

  async #call(step: number, catalog: TurnCatalog): Promise<TurnEvent> {
    const { hooks, id: sessionId } = this.#scope.session;
    const { emit, signal } = this.#scope.request;
    const { messages: history, system } = this.#scope.context;
    this.#scope.context.use(catalog);
    const outcome = await callModel({
      clock: this.#scope.session.services.clock,
      model: this.#model,
      request: {
        sessionId,
        turnId: this.#scope.facts.turnId,
        step,
        system,
        history,
        turn: this.#scope.state.messages,
        tools: catalog.preamble.toolSpecs,
      },
      attachments: this.#hasAttachments() ? this.#scope.session.blobs : undefined,
      journal: this.#scope.journal,
      hooks,
      facts: { ...this.#scope.facts, step },
      emit,
      signal,
    });
    const { record } = outcome;
    if ("error" in outcome) {
      const { error, cost } = outcome;
      // A turn that cannot be written down cannot go on; one that does not repeat itself must not.
      if (isStoreError(error)) throw error;
      if (error.code === "replay_mismatch") return promptFailedBy(replayIssue(error));
      const issues = await this.#finishStream(step, signal.aborted ? "cancelled" : "provider_error");
      const issue = issueOf("model", error.code, error);
      return { type: "model_failed", issue, issues, record, ...(cost && { usage: cost }) };
    }
    const { response, aborted } = outcome;
    this.latestUsage = response.usage;
    this.#scope.session.past.promptTokens = response.usage.inputTokens;
    const read = this.#interpret(response);
    const issues = await this.#finishStream(step, aborted ? "aborted" : "complete");
    return { type: "model_done", response, record, issues, ...read };
  }

  /** A spent budget ends the turn, or keeps it waiting until somebody raises it. */
  #budgetSpent(step: number, why: string): TurnEvent | Promise<TurnEvent> {
    const issue: TurnIssue = { kind: "runtime", code: "budget_spent", message: why };
    if (this.#scope.session.spending.budget?.whenSpent !== "pause") return { type: "budget_spent", issue };
    return this.#pause(step, issue);
  }

  async #pause(step: number, issue: TurnIssue): Promise<TurnEvent> {
    const { emit, signal } = this.#scope.request;
    emit({ type: "turn_paused", code: issue.code, message: issue.message });
    await this.#scope.session.spending.untilRaised(signal);
    emit({ type: "turn_resumed" });
    return signal.aborted ? { type: "budget_spent", issue } : this.ask(step);
  }

  #hasAttachments(): boolean {
    return this.#scope.session.past.hasAttachments || haveAttachments(this.#scope.state.messages);
  }

  /** What the protocol makes of an answer; making nothing of it ends the turn. */
  #interpret(response: ModelResponse): { next: ProtocolStep } | { issue: TurnIssue } {
    try {
      return { next: this.#scope.context.catalog.preamble.interpret(response) };
    } catch (error) {
      return { issue: issueOf("plugin", "protocol_failed", error) };
    }
  }

  /** Every call that was begun is told to have ended; what goes wrong there is an issue, never the turn's end. */
  async #finishStream(step: number, reason: StreamEnd): Promise<readonly TurnIssue[]> {
    const { hooks } = this.#scope.session;
    if (!hooks.has("stream_finished")) return NO_ISSUES;
    return hooks.announce("stream_finished", { ...this.#scope.facts, step, reason });
  }
}

function promptFailedBy(issue: TurnIssue): TurnEvent {
  return { type: "prompt_failed", issue };
}

const NO_ISSUES: readonly TurnIssue[] = [];

const STORE_CODES: readonly string[] = [
  "store_write_failed",
  "store_closed",
  "store_lost",
  "head_conflict",
  "commit_too_large",
];

function isStoreError({ code }: TroupeError): boolean {
  return STORE_CODES.includes(code);
}
