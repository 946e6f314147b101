import type { HookFacts } from "../../src/plugin/index.js";

export type GuardFacts = HookFacts["before_tool_call"];

const LINE = "the quick brown fox jumps over the lazy dog, again and again and once more";

/**
 * What a guard is shown before a tool call, about `bytes` long as JSON. Every context is an object of its own: in one
 * message, a structured clone would write a repeated object only once.
 */
export function makeContexts(count: number, bytes: number): GuardFacts[] {
  return Array.from({ length: count }, (_, n) => {
    const lines: string[] = [];
    const facts: GuardFacts = {
      sessionId: `session-${n}`,
      turnId: "t7",
      turnIndex: 7,
      call: { callId: `call_t7_0_${n}`, toolName: "write_file", args: { path: `/notes/${n}.md`, lines } },
    };
    let size = JSON.stringify(facts).length;
    while (size < bytes) {
      const line = LINE.slice(0, Math.max(1, bytes - size - 3));
      lines.push(line);
      size += line.length + 3;
    }
    return facts;
  });
}
