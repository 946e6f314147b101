import type { Part } from "../history/index.js";
import { type ProtocolStep, renderCodeResult } from "../model/index.js";
import { renderToolOutput, type ToolRecord, turnEndOf, wordsOf } from "../tools/index.js";
import { ask, change } from "./turn-effects.js";
import { finish, interrupted, isAtLimit, leaveFrame, stop, turnLimit } from "./turn-endings.js";
import { append, applyDirectives } from "./turn-messages.js";
import type { TurnEvent, TurnState, TurnStep } from "./turn-state.js";

// What a turn makes of work: the tools and the code the model asked for, and what they came to.

export function startWork(step: TurnStep, work: NonNullable<TurnState["work"]>): TurnStep {
  return ask(step, { phase: work.type, work });
}

export function onTools(before: TurnStep, event: Extract<TurnEvent, { type: "tools_done" }>): TurnStep {
  const { records, directives, issue } = event;
  const parts: Part[] = records.map(({ callId, toolName, output, modelText }) => ({
    type: "tool_result",
    callId,
    toolName,
    status: output.status,
    text: modelText ?? renderToolOutput(output),
  }));
  // Every call has its result before anything else happens, so the history stays acceptable to every provider.
  const worked = withCalls(before, records);
  const step = applyDirectives(parts.length === 0 ? worked : append(worked, "tool", parts), directives);
  const ended = interrupted(step, directives);
  if (ended !== undefined) return ended;
  if (issue !== undefined) return stop(step, "runtime_error", issue);
  const fruitful = records.some(({ output }) => output.status === "success");
  return endByTool(step, records) ?? afterWork(step, fruitful);
}

/** What the code printed is the model's next reading, unless the code itself gave the answer. */
export function onCode(before: TurnStep, event: Extract<TurnEvent, { type: "code_done" }>): TurnStep {
  const { result, directives, issue } = event;
  const printed: Part = { type: "text", text: renderCodeResult(result) };
  const ran = withCalls(before, result.toolCalls);
  const step = applyDirectives(append(ran, "user", [printed], { origin: { kind: "protocol" } }), directives);
  const interruption = interrupted(step, directives);
  if (interruption !== undefined) return interruption;
  if (issue !== undefined) return stop(step, "runtime_error", issue);
  // A tool that ends the turn does so wherever it was called.
  const ended = endByTool(step, result.toolCalls);
  if (ended !== undefined) return ended;
  if (result.terminalFinish === undefined) return afterWork(step, result.error === undefined);
  const { value, failed = false } = result.terminalFinish;
  if (!failed) return complete(step, { kind: "finish", text: wordsOf(value), value });
  const submitted = { kind: "runtime", code: "submitted_error", message: wordsOf(value) } as const;
  return stop(step, "submitted_error", submitted, { value });
}

function withCalls(step: TurnStep, records: readonly ToolRecord[]): TurnStep {
  return change(step, { work: undefined, toolCalls: [...step.state.toolCalls, ...records] });
}

/** The answer is there: the last checkpoint decides whether it stands. */
export function complete(step: TurnStep, { text, value }: Extract<ProtocolStep, { kind: "finish" }>): TurnStep {
  const outcome = { type: "finished", text, ...(value !== undefined && { value }) } as const;
  return ask(step, { phase: "checkpoint", checkpoint: "before_completion", outcome });
}

/** The end of a turn that one of these calls ended: nothing is asked any more, not even a checkpoint. */
function endByTool(step: TurnStep, records: readonly ToolRecord[]): TurnStep | undefined {
  const end = turnEndOf(records);
  if (end === undefined) return undefined;
  const { toolName, control } = end;
  switch (control.kind) {
    case "finish": {
      const { value, text = wordsOf(value) } = control;
      return finish(step, { type: "finished", text, value, toolName });
    }
    case "fail": {
      const { code, message, value } = control;
      const said = { toolName, ...(value !== undefined && { value }) };
      return stop(step, "tool_error", { kind: "tool", code, message }, said);
    }
    case "switch_agent_frame":
      return leaveFrame(step, control);
  }
}

/** `fruitful`: something of it went well. */
function afterWork(before: TurnStep, fruitful: boolean): TurnStep {
  const fruitless = fruitful ? 0 : before.state.fruitless + 1;
  const step = change(before, { fruitless });
  if (isAtLimit(step.state)) return turnLimit(step);
  const limit = step.state.config.noProgressLimit ?? null;
  if (limit === null || fruitless < limit) return ask(step, { phase: "checkpoint", checkpoint: "after_work" });
  const message = `Nothing the model tried in ${limit} steps worked.`;
  return stop(step, "max_turns", { kind: "runtime", code: "no_progress", message });
}
