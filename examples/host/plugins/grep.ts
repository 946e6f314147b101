import { definePlugin } from "troupe/plugin";
import { z } from "zod";

/** Looks for words with the system's own grep. Its entry grants it processes. */
export default definePlugin({
  id: "example.grep",
  version: "1.0.0",
  tools: {
    grep: {
      description: "Looks for a word in a file.",
      inputSchema: z.object({ word: z.string(), file: z.string() }),
      async execute({ word, file }, { host: { processes } }) {
        const { id } = await processes.start({ argv: ["grep", "-n", "--", word, file] });
        let lines = "";
        for (let from = 0, ended = false; !ended; ) {
          const output = await processes.read(id, { from, waitMs: 1_000 });
          lines += output.text;
          ({ next: from, ended } = output);
        }
        const { exitCode } = await processes.wait(id, { waitMs: 1_000 });
        return exitCode === 0 ? lines : `${word} is not in ${file}.`;
      },
    },
  },
});
