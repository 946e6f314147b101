import { EventEmitter, once } from "node:events";
import { createTroupe, scriptedModel } from "troupe";

const model = scriptedModel({ turns: [[{ toolCalls: [{ tool: "dig", args: {} }] }], [{ text: "Dry, so far." }]] });
const work = new EventEmitter();
const troupe = await createTroupe({
  model,
  tools: {
    dig: {
      description: "Digs a well.",
      inputSchema: { type: "object" },
      cancelGraceMs: 10_000, // how long it may take to stop; what it returns by then counts
      async execute(_args, { signal }) {
        work.emit("begun");
        await once(signal, "abort");
        return "stopped at two metres";
      },
    },
  },
});

const session = await troupe.session("garden");
const turn = session.turn("Dig a well.");
await once(work, "begun");
turn.cancel("It is raining.");
const { outcome, toolCalls } = await turn; // cancelled, and stored: it does not reject
console.log(outcome);
console.log(toolCalls[0]?.output);
console.log((await session.turn("How is the well?")).text);

await troupe.close();
