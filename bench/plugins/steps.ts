import { definePlugin } from "troupe/plugin";

const EMPTY = { type: "object" } as const;
const STEPS = { type: "object", properties: { steps: { type: "integer" } }, required: ["steps"] } as const;

/** The same work as a tool and as a step of a job. */
const work = (n: number) => ({ n, said: "It is done." });

export default definePlugin({
  id: "bench.steps",
  version: "1.0.0",
  tools: {
    work: { description: "Works", inputSchema: EMPTY, execute: () => work(0) },
  },
  jobs: {
    steps: {
      input: STEPS,
      async run(input, { step }) {
        const { steps } = input as { readonly steps: number };
        for (let n = 0; n < steps; n++) await step("work", () => work(n));
        return steps;
      },
    },
  },
  commands: {
    "bench.steps": {
      description: "Begins a job",
      input: STEPS,
      async run(input, { host }) {
        return { output: (await host.spawnManagedTask({ job: "steps", input: input as never })).id };
      },
    },
  },
});
