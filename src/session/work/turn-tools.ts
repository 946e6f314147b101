import { NO_DIRECTIVES, type TurnEffect, type TurnEvent, toolFailure } from "../../kernel/index.js";
import type { ToolBatch } from "./tool-attempts.js";
import { runToolBatch, type ToolBatchResult } from "./tool-calls.js";
import { replayIssue, type TurnScope } from "./turn-scope.js";

/** The calls of one answer of the model. */
export async function runTools(
  scope: TurnScope,
  { calls, brokenArgs }: Extract<TurnEffect, { type: "tools" }>,
): Promise<TurnEvent> {
  try {
    return { type: "tools_done", ...(await runCalls(scope, { calls, brokenArgs })) };
  } catch (error) {
    const issue = replayIssue(error);
    const output = toolFailure("internal", issue.code, issue.message);
    const records = calls.map((call, completed) => ({ ...call, output, durationMs: 0, completed }));
    return { type: "tools_done", records, directives: NO_DIRECTIVES, issue };
  }
}

export function runCalls(
  scope: TurnScope,
  { calls, brokenArgs }: Pick<ToolBatch, "calls" | "brokenArgs">,
  signal = scope.request.signal,
): Promise<ToolBatchResult> {
  const { emit } = scope.request;
  const { catalog } = scope.context;
  const { step } = scope.state;
  return runToolBatch({
    session: scope.session,
    facts: scope.facts,
    catalog,
    calls,
    brokenArgs,
    signal,
    emit,
    journal: scope.journal,
    step,
  });
}
