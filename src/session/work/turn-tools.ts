import { NO_DIRECTIVES, type TurnEffect, type TurnEvent, toolFailure } from "../../kernel/index.js";
import { runToolBatch } from "./tool-calls.js";
import { replayIssue, type TurnScope } from "./turn-scope.js";

/** The calls of one answer of the model. */
export async function runTools(
  turn: TurnScope,
  { calls, brokenArgs }: Extract<TurnEffect, { type: "tools" }>,
): Promise<TurnEvent> {
  try {
    return { type: "tools_done", ...(await runToolBatch({ turn, calls, brokenArgs, signal: turn.request.signal })) };
  } catch (error) {
    const issue = replayIssue(error);
    const output = toolFailure("internal", issue.code, issue.message);
    const records = calls.map((call, completed) => ({ ...call, output, durationMs: 0, completed }));
    return { type: "tools_done", records, directives: NO_DIRECTIVES, issue };
  }
}
