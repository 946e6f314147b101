import { ignore, untilAborted } from "../../async/index.js";
import {
  aborted,
  asTroupeError,
  type CodeResult,
  type JsonObject,
  NO_DIRECTIVES,
  type ToolOutput,
  type ToolRecord,
  TroupeError,
  type TurnDirectives,
  type TurnEffect,
  type TurnEvent,
  type TurnIssue,
} from "../../kernel/index.js";
import {
  type ExecRequest,
  type ExecutionContext,
  hostFacade,
  RUNTIME_SESSION_HOST,
  type RuntimeSessionHost,
} from "../../plugin/index.js";
import { isSuspended } from "../journal/index.js";
import { AskingCall, readCodeAnswer } from "../plugins/index.js";
import { runToolBatch, type ToolBatchResult } from "./tools/tool-calls.js";
import { type AttachedBytes, attachAgain, bytesBesideOutputs } from "./tools/tool-content.js";
import type { Turn } from "./turn.js";
import { replayIssue } from "./turn-session.js";

type CodeRan = {
  readonly result: CodeResult;
  readonly directives: TurnDirectives;
  /** Hooks around its tool calls that failed. */
  readonly issues?: readonly TurnIssue[];
};
type RecordedCode = CodeRan & AttachedBytes & { readonly execution?: Uint8Array | null };

/** Code runs in the protocol's executor; the tools it calls go through the same catalog and hooks as the model's. */
export async function runTurnCode(
  turn: Turn,
  { language, code }: Extract<TurnEffect, { type: "code" }>,
): Promise<TurnEvent> {
  try {
    return { type: "code_done", ...(await codeOnce(turn, { language, code })) };
  } catch (error) {
    const issue = replayIssue(error);
    const result = { observations: [], error: issue.message, toolCalls: [], durationMs: 0 };
    return { type: "code_done", result, directives: NO_DIRECTIVES, issue };
  }
}

/** Code that ran is not run again: what it left behind, in its executor and in plugins, is kept with its result. */
function codeOnce(turn: Turn, asked: { language: string; code: string }): CodeRan | Promise<CodeRan> {
  const { protocol } = turn.session;
  const { signal } = turn.request;
  return turn.journal.once<CodeRan, RecordedCode>({
    key: `code:${turn.state.step}`,
    envelope: () => asked,
    counts: () => true,
    run: async () => {
      const ran = await runCode(turn, { ...asked, acceptFinish: true });
      // Cut off by closing it has not ended: it runs again when the turn goes on, and finds the calls it had finished.
      if (isSuspended(signal)) throw signal.reason;
      return ran;
    },
    keep: async (ran) => {
      // The commit tries again, and says what is wrong with it.
      const execution = await protocol.captureExecution().catch(ignore);
      const outputs = ran.result.toolCalls.map(({ output }) => output);
      const beside = bytesBesideOutputs(turn, outputs);
      return { ...ran, ...beside, ...(execution instanceof Uint8Array || execution === null ? { execution } : {}) };
    },
    changes: ({ result }) => (result.toolCalls.length === 0 ? [] : "all"),
    found: async ({ execution, attached, ...ran }) => {
      if (attached !== undefined) attachAgain(turn, { attached });
      if (execution !== undefined) await protocol.restoreExecution(execution);
      return ran;
    },
  });
}

/**
 * Runs a piece of code in the protocol's executor. The tools it calls are the turn's, each a batch of its own. Cancelling
 * the turn, or a tool hook that aborts it, ends the code whether it listens or not.
 */
async function runCode(turn: Turn, request: ExecRequest): Promise<CodeRan> {
  const { session, facts, state } = turn;
  const { clock } = session.services;
  const started = clock.now();
  const stop = new AbortController();
  const signal = AbortSignal.any([turn.request.signal, stop.signal]);
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
    const place = `${turn.codeCalls ?? facts.turnId}-${state.step}-${batches.length + 1}`;
    const callId = `code-${place}`;
    const batch = runToolBatch({ turn, calls: [{ callId, toolName, args }], brokenArgs: {}, signal }).then(placed);
    batches.push(batch);
    const { records, directives } = await batch;
    if (directives.abort !== undefined)
      stop.abort(aborted(AbortSignal.abort("A plugin aborted the turn while this code ran.")));
    return (records[0] as ToolRecord).output;
  };
  const pluginId = session.protocol.ownerOf("codeExecutor");
  const answer = await execute(turn, request, {
    sessionId: session.id,
    turnId: facts.turnId,
    turnOptions: turn.protocolOptions,
    extension: turn.request.extras.extension,
    host: protocolHost(turn, { site: "code", pluginId }),
    signal,
    callTool,
  });
  ended = true;
  const results = await Promise.all(batches);
  const issues = results.flatMap((batch) => batch.issues ?? []);
  const { observations = [], error, terminalFinish, durationMs = clock.now() - started } = answer;
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
    ...(issues.length > 0 && { issues }),
  };
}

/** What goes wrong in code, or with it, is for the model to read. */
async function execute(
  { session: { protocol } }: Turn,
  request: ExecRequest,
  context: ExecutionContext,
): Promise<Partial<Omit<CodeResult, "toolCalls">>> {
  const { codeExecutor } = protocol;
  try {
    if (codeExecutor === undefined)
      throw new TroupeError("code_execution_unavailable", "Code execution is not available in this session.");
    const running = (async () => codeExecutor.executeCode(context, request))();
    return readCodeAnswer(await untilAborted(running, context.signal), protocol.ownerOf("codeExecutor"));
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

/** The host services of the protocol: it is part of the turn and may do what the runtime may. */
export function protocolHost(
  { session, state, request: { signal } }: Turn,
  { site, pluginId }: { readonly site: "before_llm_call" | "code"; readonly pluginId: string },
): RuntimeSessionHost {
  const asking = new AskingCall(`${site}:${pluginId}:${state.step}`);
  const request = { sessionId: session.id, pluginId, granted: RUNTIME_SESSION_HOST, signal, asking };
  const host = hostFacade(RUNTIME_SESSION_HOST, (method, args) => session.services.host({ ...request, method, args }));
  // The facade has the methods of every interface it was given.
  return host as RuntimeSessionHost;
}
