import { definePlugin } from "troupe/plugin";
import { z } from "zod";

/** Lets the model have a file watched. Its entry grants it the folder. */
export default definePlugin({
  id: "example.watcher",
  version: "1.0.0",
  tools: {
    watch_log: {
      description: "Watches a log file, and tells you of each line that matches.",
      inputSchema: z.object({ file: z.string(), pattern: z.string() }),
      async execute({ file, pattern }, { host }) {
        const { activeCount } = await host.startMonitor({
          id: "log",
          label: "The log",
          file,
          pattern,
          deliver: "turn",
        });
        return `${activeCount} watched`;
      },
    },
  },
});
