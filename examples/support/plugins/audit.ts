import { appendFile } from "node:fs/promises";
import { definePlugin } from "troupe/plugin";
import { z } from "zod";

/**
 * Writes down what was done, a line of JSON each, and nothing of what was said. Its thread may write to the one folder that
 * the host grants it, and read nothing. A hook runs at least once: after a crash a line may be there twice, with the same
 * names.
 */
export default definePlugin({
  id: "support.audit",
  version: "1.0.0",
  options: z.object({ file: z.string() }),
  hooks: {
    afterToolCall({ sessionId, turnId, call, output, options }) {
      return write(options.file, { chat: sessionId, turn: turnId, tool: call.toolName, status: output.status });
    },
    turnFinalized({ sessionId, turnId, turn, options }) {
      const { outcome } = turn;
      const ended = outcome.type === "stopped" ? outcome.code : outcome.type;
      return write(options.file, { chat: sessionId, turn: turnId, ended });
    },
  },
});

async function write(file: string, line: object): Promise<void> {
  await appendFile(file, `${JSON.stringify(line)}\n`);
}
