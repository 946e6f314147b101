import { definePlugin, startedTask } from "troupe/plugin";
import { z } from "zod";

/** Counts words in the background. */
export default definePlugin({
  id: "example.indexer",
  version: "1.0.0",
  jobs: {
    index: {
      input: z.object({ pages: z.array(z.string()) }),
      async run({ pages }, { step, sleep, progress }) {
        let words = 0;
        for (const [n, page] of pages.entries()) {
          // Stored when it is done: a run that begins anew gets it from there.
          words += await step(`page ${n}`, () => page.split(" ").length);
          progress({ pages: n + 1 });
        }
        // Nothing of it is in memory meanwhile.
        await sleep(Date.now() + 100);
        return { pages: pages.length, words };
      },
    },
  },
  tools: {
    index: {
      description: "Makes an index. It takes a while.",
      inputSchema: z.object({ pages: z.array(z.string()) }),
      async execute(input, { host }) {
        const task = await host.spawnManagedTask({ job: "index", input, label: "Index", key: "index" });
        return startedTask(task, { deliver: "turn" });
      },
    },
  },
});
