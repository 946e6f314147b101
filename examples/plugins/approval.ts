import { definePlugin, deny, emitEvents, matchesTool, shortCircuitTool } from "troupe/plugin";
import { z } from "zod";

/**
 * Stands before the dangerous tools. What the host did not allow is denied. With `dryRun` what is allowed is not run
 * either: the model is told what would have happened.
 *
 * The matcher is part of the plugin's manifest, so a call of any other tool costs no message.
 */
export default definePlugin({
  id: "example.approval",
  version: "1.0.0",
  options: z.object({
    /** Names, or beginnings of names with a star: `shell`, `fs_*`. */
    allowed: z.array(z.string()).default([]),
    dryRun: z.boolean().default(false),
  }),
  hooks: {
    beforeToolCall: {
      tools: ["shell", "fs_write", "delete_*"],
      run({ call: { toolName, args }, options }) {
        if (!matchesTool(options.allowed, toolName)) {
          // Both count: the event is told whatever becomes of the call, and no later plugin can undo the denial.
          return [
            emitEvents({ name: "approval_needed", payload: { tool: toolName, args } }),
            deny("not_approved", `${toolName} needs an approval it does not have. Do without it, or ask the user.`),
          ];
        }
        if (options.dryRun) return shortCircuitTool({ dryRun: true, wouldRun: toolName, args });
        return undefined;
      },
    },
  },
});
