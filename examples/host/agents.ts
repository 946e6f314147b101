import { createTroupe, scriptedModel } from "troupe";
import { subagents } from "troupe/subagents";

const lead = scriptedModel({
  turns: [
    [
      {
        toolCalls: [{ tool: "spawn_agent", args: { kind: "looker", name: "oslo", task: "The weather in Oslo, now." } }],
      },
      { text: "Somebody looks it up." },
    ],
    [{ text: "Heard: {input}" }],
    [
      { toolCalls: [{ tool: "ask_agent", args: { agent: "oslo", message: "And tomorrow?" } }] },
      { text: "{tool_result}" },
    ],
    [{ toolCalls: [{ tool: "close_agent", args: { agent: "oslo" } }] }, { text: "{tool_result}" }],
  ],
});
const looker = scriptedModel({ turns: [[{ text: "It rains in Oslo." }], [{ text: "The sun will shine." }]] });

const troupe = await createTroupe({
  model: lead,
  // What an agent of this kind is; see docs/agents.md. Without kinds an agent is what its session is.
  agents: { looker: { model: looker, instructions: "Look one thing up. Answer in one sentence." } },
  plugins: [{ module: subagents, options: { agents: { looker: "Looks one thing up" }, deliver: "turn" } }],
  budget: { maxTokens: 50_000 }, // the session's, its agents included
});
const session = await troupe.session("trip");

const told = (async () => {
  for await (const { event } of session.observe({ children: true })) {
    if (event.type !== "activity" || event.activity.type !== "turn_finished") continue;
    const { text } = event.activity.result;
    console.log(event.child === undefined ? "session:" : "agent:", text.replace(/agent:call_\w+/, "…"));
    if (text.startsWith("Heard")) return;
  }
})();
await session.view(); // answered: so the watching has begun
await session.turn("Should I take an umbrella?");
await told;

for (const question of ["And tomorrow?", "Thank you."]) console.log((await session.turn(question)).text);
await troupe.close();
