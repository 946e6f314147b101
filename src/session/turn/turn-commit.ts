import { frameTaskOf, type StorableTurn, type TurnEvent, type TurnIssue } from "../../kernel/index.js";
import type { NewFrame } from "../state/index.js";
import type { TurnScope } from "../work/index.js";
import { issueOf } from "../work/index.js";

/** Captures the state plugins and the code executor are left in; at once when nobody has any. */
export function captureTurn(scope: TurnScope): TurnEvent | Promise<TurnEvent> {
  const { hooks, protocol } = scope.session;
  if (hooks.needCapture || protocol.codeExecutor !== undefined) return captureState(scope);
  return { type: "captured", issues: hooks.takeUnrevised().map(unrevised) };
}

async function captureState({ session }: TurnScope): Promise<TurnEvent> {
  const { hooks, protocol } = session;
  const issues: TurnIssue[] = [];
  /** A capture that fails keeps the last good state and costs the turn nothing but an issue. */
  const orIssue = async (code: string, attempt: () => Promise<unknown>) => {
    try {
      await attempt();
    } catch (error) {
      if (session.life.isStale) throw error;
      issues.push(issueOf("plugin", code, error));
    }
  };
  if (hooks.needCapture) await orIssue("plugin_capture_failed", () => hooks.capture());
  issues.push(...hooks.takeUnrevised().map(unrevised));
  if (protocol.codeExecutor !== undefined) await orIssue("execution_capture_failed", () => protocol.captureExecution());
  return { type: "captured", issues };
}

/** Stores a turn with the state that was captured, and enters the frame it leaves for. */
export async function commitTurn(scope: TurnScope, turn: StorableTurn): Promise<TurnEvent> {
  const { session, request, beginning, journal } = scope;
  const { name, before } = beginning;
  const entering = frameLeftFor(turn);
  const revision = await session.graph.commit(turn, { name, before, call: request.call, entering });
  journal.ended();
  return entering === undefined ? { type: "committed", revision } : enterFrame(scope, entering);
}

function frameLeftFor({ summary: { turnId, outcome }, initialNodes: nodes }: StorableTurn): NewFrame | undefined {
  if (outcome.type !== "frame_switch") return undefined;
  const { frameId, task } = outcome;
  const waits = { id: frameTaskOf(turnId), text: task };
  return { frameId, reason: "switch", nodes, origin: { kind: "protocol" }, task: waits };
}

/**
 * The turn is stored in the frame it was asked in; the next one finds the new frame. Whatever goes wrong now is an
 * issue of a turn that is stored, and never says that it is not.
 */
async function enterFrame({ session }: TurnScope, frame: NewFrame): Promise<TurnEvent> {
  const issues: TurnIssue[] = [];
  try {
    await session.graph.openFrame(frame);
  } catch (error) {
    issues.push(issueOf("plugin", "frame_switch_failed", error));
  }
  return { type: "committed", revision: session.stored.revision, issues };
}

function unrevised(pluginId: string): TurnIssue {
  const message = `The state of plugin ${pluginId} changed, but its snapshotRevision did not: the change is not stored.`;
  return { kind: "plugin", code: "plugin_state_unrevised", message, pluginId };
}
