import { ignore } from "../../async/index.js";
import { NO_DIRECTIVES, type TurnEffect, type TurnEvent } from "../../kernel/index.js";
import { isSuspended } from "../journal/index.js";
import { runCode } from "./run-code.js";
import { runToolBatch } from "./tool-calls.js";
import { protocolHost, replayIssue, type TurnScope } from "./turn-scope.js";

/** Code runs in the protocol's executor; the tools it calls go through the same catalog and hooks as the model's. */
export async function runTurnCode(
  scope: TurnScope,
  { language, code }: Extract<TurnEffect, { type: "code" }>,
): Promise<TurnEvent> {
  const { protocol, id: sessionId } = scope.session;
  const { signal, extras } = scope.request;
  const { turnId } = scope.facts;
  const pluginId = protocol.ownerOf("codeExecutor");
  const execute = () =>
    runCode({
      clock: scope.session.services.clock,
      executor: protocol.codeExecutor,
      pluginId,
      request: { language, code, acceptFinish: true },
      context: {
        sessionId,
        turnId,
        turnOptions: scope.context.protocolOptions,
        extension: extras.extension,
        host: protocolHost(scope, { site: "code", pluginId }),
        signal,
      },
      callIds: `code-${turnId}-${scope.state.step}`,
      runTool: (call, stop) => runToolBatch({ turn: scope, calls: [call], brokenArgs: {}, signal: stop }),
    });
  try {
    return { type: "code_done", ...(await codeOnce(scope, { language, code }, execute)) };
  } catch (error) {
    const issue = replayIssue(error);
    const result = { observations: [], error: issue.message, toolCalls: [], durationMs: 0 };
    return { type: "code_done", result, directives: NO_DIRECTIVES, issue };
  }
}

type CodeRan = Awaited<ReturnType<typeof runCode>>;
type RecordedCode = CodeRan & { readonly execution?: Uint8Array | null };

/** Code that ran is not run again: what it left behind, in its executor and in plugins, is kept with its result. */
function codeOnce(
  { session, journal, state, request: { signal } }: TurnScope,
  envelope: { readonly language: string; readonly code: string },
  execute: () => Promise<CodeRan>,
): CodeRan | Promise<CodeRan> {
  return journal.once<CodeRan, RecordedCode>({
    key: `code:${state.step}`,
    envelope: () => envelope,
    run: async () => {
      const ran = await execute();
      // Cut off by closing it has not ended: it runs again when the turn goes on, and finds the calls it had finished.
      if (isSuspended(signal)) throw signal.reason;
      return ran;
    },
    keep: async (ran) => {
      // The commit tries again, and says what is wrong with it.
      const execution = await session.protocol.captureExecution().catch(ignore);
      return { ...ran, ...(execution instanceof Uint8Array || execution === null ? { execution } : {}) };
    },
    changes: ({ result }) => (result.toolCalls.length === 0 ? [] : "all"),
    found: async ({ execution, ...ran }) => {
      if (execution !== undefined) await session.protocol.restoreExecution(execution);
      return ran;
    },
  });
}
