import { ignore } from "../async/index.js";
import { NO_DIRECTIVES, type TurnEffect, type TurnEvent } from "../kernel/index.js";

import type { PluginStates, TurnJournal } from "./journal.js";
import { runCode } from "./run-code.js";
import { isSuspended } from "./suspension.js";
import { protocolHost, replayIssue, type TurnScope } from "./turn-scope.js";
import { runCalls } from "./turn-tools.js";

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
      executor: protocol.codeExecutor,
      pluginId,
      request: { language, code, acceptFinish: true },
      context: {
        sessionId,
        turnId,
        turnOptions: scope.context.protocolOptions,
        extension: extras.extension,
        host: protocolHost(scope, pluginId),
        signal,
      },
      callIds: `code-${turnId}-${scope.state.step}`,
      runTool: (call, stop) => runCalls(scope, { calls: [call], brokenArgs: {} }, stop),
    });
  if (scope.journal === undefined) return { type: "code_done", ...(await execute()) };
  try {
    return { type: "code_done", ...(await codeOnce(scope, scope.journal, { language, code }, execute)) };
  } catch (error) {
    const issue = replayIssue(error);
    const result = { observations: [], error: issue.message, toolCalls: [], durationMs: 0 };
    return { type: "code_done", result, directives: NO_DIRECTIVES, issue };
  }
}

/** Code that ran is not run again: what it left behind, in its executor and in plugins, is kept with its result. */
async function codeOnce(
  scope: TurnScope,
  journal: TurnJournal,
  envelope: { readonly language: string; readonly code: string },
  execute: () => ReturnType<typeof runCode>,
): ReturnType<typeof runCode> {
  const { session } = scope;
  const key = `code:${scope.state.step}`;
  const found = journal.find<RecordedCode>(key, envelope);
  if (found !== undefined) {
    const { execution, state, ...ran } = found.value;
    journal.restoreState(session.hooks, state, found.sequence);
    if (execution !== undefined) await session.protocol.restoreExecution(execution);
    return ran;
  }
  const unsettled = journal.settled();
  if (unsettled !== undefined) await unsettled;
  const ran = await execute();
  // Cut off by closing it has not ended: it runs again when the turn goes on, and finds the calls it had finished.
  if (isSuspended(scope.request.signal)) throw scope.request.signal.reason;
  // The commit tries again, and says what is wrong with it.
  const execution = await session.protocol.captureExecution().catch(ignore);
  const state = ran.result.toolCalls.length === 0 ? undefined : await session.hooks.unsavedState();
  await journal.record(key, envelope, {
    ...ran,
    ...(execution instanceof Uint8Array || execution === null ? { execution } : {}),
    ...(state && { state }),
  } satisfies RecordedCode);
  return ran;
}

type RecordedCode = Awaited<ReturnType<typeof runCode>> & {
  readonly execution?: Uint8Array | null;
  readonly state?: PluginStates;
};
