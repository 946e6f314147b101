import type { ModelResponse, ProtocolStep, TroupeError, TurnEvent, TurnIssue } from "../../kernel/index.js";
import type { StreamEnd } from "../../plugin/index.js";
import type { TurnCatalog } from "../protocol/index.js";
import { haveAttachments } from "../stored/index.js";
import { issueOf } from "./issues.js";
import { callModel } from "./model-call.js";
import { promptFailed } from "./turn-context.js";
import { replayIssue, type TurnScope } from "./turn-scope.js";

/** Calls the model. Tools that changed since the last call are as they are now; when none did, nothing is awaited for them. */
export function askModel(turn: TurnScope, step: number): TurnEvent | Promise<TurnEvent> {
  const why = turn.session.spending.whySpent();
  if (why !== undefined) return budgetSpent(turn, step, why);
  try {
    const resolved = turn.context.resolveCatalog();
    if (!(resolved instanceof Promise)) return callWith(turn, step, resolved);
    return resolved.then((catalog) => callWith(turn, step, catalog), promptFailed);
  } catch (error) {
    return promptFailed(error);
  }
}

async function callWith(turn: TurnScope, step: number, catalog: TurnCatalog): Promise<TurnEvent> {
  const { session, request, context, facts, state } = turn;
  const { emit, signal } = request;
  context.use(catalog);
  const outcome = await callModel({
    clock: session.services.clock,
    model: turn.beginning.model,
    request: {
      sessionId: session.id,
      turnId: facts.turnId,
      step,
      system: context.system,
      history: context.messages,
      turn: state.messages,
      tools: catalog.preamble.toolSpecs,
    },
    attachments: session.past.hasAttachments || haveAttachments(state.messages) ? session.blobs : undefined,
    journal: turn.journal,
    hooks: session.hooks,
    facts: { ...facts, step },
    emit,
    signal,
  });
  const { record } = outcome;
  if ("error" in outcome) {
    const { error, cost } = outcome;
    // A turn that cannot be written down cannot go on; one that does not repeat itself must not.
    if (isStoreError(error)) throw error;
    if (error.code === "replay_mismatch") return { type: "prompt_failed", issue: replayIssue(error) };
    const issues = await finishStream(turn, step, signal.aborted ? "cancelled" : "provider_error");
    const issue = issueOf("model", error.code, error);
    return { type: "model_failed", issue, issues, record, ...(cost && { usage: cost }) };
  }
  const { response, aborted } = outcome;
  context.latestUsage = response.usage;
  session.past.promptTokens = response.usage.inputTokens;
  const read = interpret(catalog, response);
  const issues = await finishStream(turn, step, aborted ? "aborted" : "complete");
  return { type: "model_done", response, record, issues, ...read };
}

/** A spent budget ends the turn, or keeps it waiting until somebody raises it. */
function budgetSpent(turn: TurnScope, step: number, why: string): TurnEvent | Promise<TurnEvent> {
  const issue: TurnIssue = { kind: "runtime", code: "budget_spent", message: why };
  if (turn.session.spending.budget?.whenSpent !== "pause") return { type: "budget_spent", issue };
  return pause(turn, step, issue);
}

async function pause(turn: TurnScope, step: number, issue: TurnIssue): Promise<TurnEvent> {
  const { emit, signal } = turn.request;
  emit({ type: "turn_paused", code: issue.code, message: issue.message });
  await turn.session.spending.untilRaised(signal);
  emit({ type: "turn_resumed" });
  return signal.aborted ? { type: "budget_spent", issue } : askModel(turn, step);
}

/** What the protocol makes of an answer; making nothing of it ends the turn. */
function interpret({ preamble }: TurnCatalog, response: ModelResponse): { next: ProtocolStep } | { issue: TurnIssue } {
  try {
    return { next: preamble.interpret(response) };
  } catch (error) {
    return { issue: issueOf("plugin", "protocol_failed", error) };
  }
}

/** Every call that was begun is told to have ended; what goes wrong there is an issue, never the turn's end. */
async function finishStream(
  { session: { hooks }, facts }: TurnScope,
  step: number,
  reason: StreamEnd,
): Promise<readonly TurnIssue[]> {
  return hooks.has("stream_finished") ? hooks.announce("stream_finished", { ...facts, step, reason }) : NO_ISSUES;
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
