import { createTroupe, scriptedModel } from "troupe";

const model = scriptedModel({
  turns: [
    [
      { toolCalls: [{ tool: "wake_me", args: { in_seconds: 1, message: "Is the cake done?" } }] },
      { text: "I will look." },
    ],
    [{ text: "Heard: {input}" }],
    [{ text: "Heard: {input}" }],
  ],
});
const troupe = await createTroupe({ model, builtInTools: ["wake_me"] });
const session = await troupe.session("kitchen");
/** The text of a turn, once it is stored. */
async function heard(turnIndex: number): Promise<void> {
  for await (const { event } of session.observe()) {
    if (event.type !== "activity" || event.activity.type !== "turn_finished") continue;
    if (event.activity.result.turnIndex !== turnIndex) continue;
    console.log(event.activity.result.text);
    return;
  }
}

const woken = heard(2);
console.log((await session.turn("There is a cake in the oven.")).text);
await woken;

// Asked for at every start, it is one schedule.
const digest = await troupe.schedules.put("digest", {
  session: "kitchen",
  cron: "0 9 * * 1-5",
  timeZone: "Europe/Oslo",
  input: "What is for lunch?",
  overlap: "skip",
});
console.log(digest.state, new Date(digest.next ?? 0).getUTCMinutes());

const asked = heard(3);
await session.view(); // answered: so the watching has begun
const { outcome } = await troupe.schedules.runNow("digest");
console.log(outcome);
await asked;
await troupe.close();
