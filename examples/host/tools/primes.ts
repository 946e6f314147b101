import { defineTool } from "troupe/plugin";
import { z } from "zod";

/** Heavy enough to belong in the tool pool. */
export default defineTool({
  description: "How many primes there are below a number.",
  inputSchema: z.object({ below: z.number().int().min(2).max(10_000_000) }),
  timeoutMs: 5_000,
  execute({ below }) {
    const composite = new Uint8Array(below);
    let count = 0;
    for (let n = 2; n < below; n++) {
      if (composite[n] === 1) continue;
      count++;
      for (let multiple = n * n; multiple < below; multiple += n) composite[multiple] = 1;
    }
    return { below, count };
  },
});
