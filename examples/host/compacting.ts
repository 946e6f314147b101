import { createTroupe, scriptedModel } from "troupe";

const found = "The harbour has twelve berths, and four are free from May on. ".repeat(4);
const model = scriptedModel({
  // What it says that it has read: more with every turn.
  turns: [200, 400, 600, 700, 900].map((inputTokens) => [{ text: found, usage: { inputTokens } }]),
  direct: [{ source: "compaction", text: "Four of the harbour's twelve berths are free from May on." }],
});

const troupe = await createTroupe({
  model,
  maxContextTokens: 1_000, // what the model can read; a real one reads 200,000 or more
  compaction: { at: 0.8, keepTurns: 1 },
});
const session = await troupe.session("harbour");
for (let n = 1; n <= 6; n++) {
  for await (const activity of session.turn(`Which berths are free? (${n})`)) {
    if (activity.type !== "context_compacted") continue;
    console.log(`${activity.reason}: ${activity.messagesBefore} messages are ${activity.messages} now`);
  }
}
for (const { role, parts } of (await session.messages()).slice(0, 3))
  console.log(
    `${role}: ${parts
      .map((part) => ("text" in part ? part.text.split("\n").at(-1) : ""))
      .join("")
      .slice(0, 57)}`,
  );
console.log((await session.view()).ledger.map(({ source }) => source).join(", "));

await troupe.close();
