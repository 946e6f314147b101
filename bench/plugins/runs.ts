import { definePlugin } from "troupe/plugin";

/** Has processes of the host: one with children of its own, which nobody ends but the runtime. */
export default definePlugin({
  id: "bench.runs",
  version: "1.0.0",
  commands: {
    "bench.runs.start": {
      description: "Starts a process that has children, and says its number",
      input: { type: "object" },
      async run(_input, { host }) {
        const { pid } = await host.processes.start({ argv: ["sh", "-c", "sleep 1000 & sleep 1000 & wait"] });
        return { output: pid };
      },
    },
  },
});
