import { definePlugin, emitEvents } from "troupe/plugin";

interface Counts {
  turns: Record<string, number>;
  toolCalls: Record<string, number>;
  slowestToolMs: number;
  lastStoredRevision: number;
}

/**
 * Keeps the books of a session: how its turns and tool calls ended, told to the host as they happen and to whoever
 * calls the tool `audit_report`. It changes nothing.
 */
export default definePlugin({
  id: "example.audit",
  version: "1.0.0",
  state: (): Counts => ({ turns: {}, toolCalls: {}, slowestToolMs: 0, lastStoredRevision: 0 }),
  hooks: {
    // Only calls that ran come by here, and one whose result another plugin replaces comes by twice: its events are
    // told once, and a maximum does not mind.
    afterToolCall({ call, output, durationMs, state }) {
      state.slowestToolMs = Math.max(state.slowestToolMs, durationMs);
      return emitEvents({ name: "tool_ran", payload: { tool: call.toolName, status: output.status } });
    },
    // The turn is decided and about to be stored. Its summary has every call, the denied ones too: count here, once.
    turnFinalized({ turn, state }) {
      const { outcome } = turn;
      count(state.turns, outcome.type === "stopped" ? outcome.reason : outcome.type);
      for (const { output } of turn.toolCalls) count(state.toolCalls, output.status);
    },
    // The turn is on disk. What changes here is stored with the next turn, or when the session is closed.
    turnPersisted({ revision, state }) {
      state.lastStoredRevision = revision;
    },
  },
  tools: {
    audit_report: {
      description: "How the turns and tool calls of this conversation ended so far.",
      inputSchema: { type: "object", properties: {}, additionalProperties: false },
      // A copy: the answer must not change when the state does.
      execute: (_args, { state }) => structuredClone(state),
    },
  },
});

function count(counts: Record<string, number>, name: string): void {
  counts[name] = (counts[name] ?? 0) + 1;
}
