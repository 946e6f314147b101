import { frameSwitchOf, frameTaskOf, type TurnIssue, type TurnResult, type TurnSummary } from "../kernel/index.js";
import type { FrameSwitch } from "../plugin/index.js";
import { issueOf } from "./issues.js";
import type { NewFrame } from "./session-parts.js";
import type { TurnKey } from "./turn-keys.js";
import type { TurnScope } from "./turn-scope.js";

export interface TurnSettling {
  readonly name: TurnKey | undefined;
  /** What came of the turns before it, in the frames it came from. */
  readonly before: readonly TurnResult[] | undefined;
  /** Where its protocol left for. */
  readonly frameSwitch: FrameSwitch | undefined;
  /** It is stored; entering its frame is all that is left. */
  readonly onStored: () => void;
}

/** Stores a turn with the state its plugins and its code executor are left in; the revision it has then. */
export async function commitTurn(scope: TurnScope, summary: TurnSummary, settling: TurnSettling): Promise<number> {
  const { session, state, request, facts } = scope;
  const { hooks, protocol } = session;
  if (hooks.needCapture) await orIssue(scope, "plugin_capture_failed", () => hooks.capture());
  for (const pluginId of hooks.takeUnrevised()) scope.addIssue(unrevised(pluginId));
  if (protocol.codeExecutor !== undefined)
    await orIssue(scope, "execution_capture_failed", () => session.captureExecution());
  const entering = frameLeftFor(facts.turnId, summary, settling.frameSwitch);
  const revision = await session.commit(summary, state.messages, {
    spent: state.spent,
    modelCallRecords: state.modelCallRecords,
    name: settling.name,
    before: settling.before,
    call: request.call,
    entering,
  });
  settling.onStored();
  return entering === undefined ? revision : enterFrame(scope, entering);
}

function frameLeftFor(
  turnId: string,
  { outcome, toolCalls }: TurnSummary,
  protocolSwitch: FrameSwitch | undefined,
): NewFrame | undefined {
  if (outcome.type !== "frame_switch") return undefined;
  const frame: FrameSwitch | undefined = protocolSwitch ?? frameSwitchOf(toolCalls);
  if (frame === undefined) return undefined;
  const { frameId, task, initialNodes: nodes = [] } = frame;
  const waits = { id: frameTaskOf(turnId), text: task };
  return { frameId, reason: "switch", nodes, origin: { kind: "protocol" }, task: waits };
}

/**
 * The turn is stored in the frame it was asked in; the next one finds the new frame. Whatever goes wrong now is an
 * issue of a turn that is stored, and never says that it is not.
 */
async function enterFrame({ session, addIssue }: TurnScope, frame: NewFrame): Promise<number> {
  try {
    await session.openFrame(frame);
  } catch (error) {
    addIssue(issueOf("plugin", "frame_switch_failed", error));
  }
  return session.revision;
}

/** A capture that fails keeps the last good state and costs the turn nothing but an issue. */
async function orIssue({ session, addIssue }: TurnScope, code: string, attempt: () => Promise<unknown>): Promise<void> {
  try {
    await attempt();
  } catch (error) {
    if (session.stale) throw error;
    addIssue(issueOf("plugin", code, error));
  }
}

function unrevised(pluginId: string): TurnIssue {
  const message = `The state of plugin ${pluginId} changed, but its snapshotRevision did not: the change is not stored.`;
  return { kind: "plugin", code: "plugin_state_unrevised", message, pluginId };
}
