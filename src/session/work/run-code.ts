import { type Clock, untilAborted } from "../../async/index.js";
import {
  asTroupeError,
  type CodeResult,
  type JsonObject,
  NO_DIRECTIVES,
  type ToolCall,
  type ToolOutput,
  type ToolRecord,
  TroupeError,
  type TurnDirectives,
} from "../../kernel/index.js";
import type { CodeExecutor, ExecRequest, ExecutionContext } from "../../plugin/index.js";
import { readCodeAnswer } from "../plugins/index.js";
import type { ToolBatchResult } from "./tool-calls.js";

export interface CodeRun {
  readonly executor: CodeExecutor | undefined;
  /** Whose executor it is. */
  readonly clock: Clock;
  readonly pluginId: string;
  readonly request: ExecRequest;
  readonly context: Omit<ExecutionContext, "callTool">;
  /** Names the tool calls of this piece of code. */
  readonly callIds: string;
  readonly runTool: (call: ToolCall, signal: AbortSignal) => Promise<ToolBatchResult>;
}

/**
 * Runs a piece of code in the protocol's executor. The tools it calls are the turn's, each a batch of its own. Cancelling
 * the turn, or a tool hook that aborts it, ends the code whether it listens or not.
 */
export async function runCode(run: CodeRun): Promise<{ result: CodeResult; directives: TurnDirectives }> {
  const started = run.clock.now();
  const stop = new AbortController();
  const signal = AbortSignal.any([run.context.signal, stop.signal]);
  const batches: Promise<ToolBatchResult>[] = [];
  let ended = false;
  let completed = 0;
  /** Each call is a batch of its own; among the calls of the code it has its place, too. */
  const placed = (result: ToolBatchResult): ToolBatchResult => ({
    ...result,
    records: result.records.map((record) => ({ ...record, completed: completed++ })),
  });
  const callTool = async (toolName: string, args: JsonObject): Promise<ToolOutput> => {
    if (ended || signal.aborted) return TOO_LATE;
    const callId = `${run.callIds}-${batches.length + 1}`;
    const batch = run.runTool({ callId, toolName, args }, signal).then(placed);
    batches.push(batch);
    const { records, directives } = await batch;
    if (directives.abort !== undefined)
      stop.abort(new TroupeError("aborted", "A plugin aborted the turn while this code ran."));
    return (records[0] as ToolRecord).output;
  };
  const answer = await execute(run, { ...run.context, signal, callTool });
  ended = true;
  const results = await Promise.all(batches);
  const { observations = [], error, terminalFinish, durationMs = run.clock.now() - started } = answer;
  return {
    result: {
      observations,
      // In the order they were called, also where several ran at once.
      toolCalls: results.flatMap(({ records }) => records),
      durationMs,
      ...(error !== undefined && { error }),
      ...(terminalFinish !== undefined && { terminalFinish }),
    },
    directives: joinDirectives(results.map(({ directives }) => directives)),
  };
}

/** What goes wrong in code, or with it, is for the model to read. */
async function execute(
  { executor, pluginId, request }: CodeRun,
  context: ExecutionContext,
): Promise<Partial<Omit<CodeResult, "toolCalls">>> {
  try {
    if (executor === undefined)
      throw new TroupeError("code_execution_unavailable", "Code execution is not available in this session.");
    const running = (async () => executor.executeCode(context, request))();
    return readCodeAnswer(await untilAborted(running, context.signal), pluginId);
  } catch (error) {
    return { error: asTroupeError(error, "code_failed").message };
  }
}

const TOO_LATE: ToolOutput = { status: "cancelled", message: "The code that calls this tool has already been ended." };

/** What several batches of tool calls asked of the turn, in their order; the last abort counts. */
function joinDirectives(batches: readonly TurnDirectives[]): TurnDirectives {
  if (batches.length === 0) return NO_DIRECTIVES;
  return {
    abort: batches.findLast(({ abort }) => abort !== undefined)?.abort,
    messages: batches.flatMap(({ messages }) => messages),
    events: batches.flatMap(({ events }) => events),
  };
}
