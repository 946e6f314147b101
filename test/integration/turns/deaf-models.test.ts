import type { Activity, Session, Turn } from "troupe";
import { describe, expect, test } from "vitest";
import { fixture, startTroupe } from "../../support/runtime.js";

const started = async (): Promise<Session> => {
  const troupe = await startTroupe({ sessionWorkers: 1, model: fixture("models/deaf.mjs") });
  return troupe.session("s");
};
async function shows(turn: Turn, type: Activity["type"]): Promise<void> {
  for await (const activity of turn) if (activity.type === type) return;
  throw new Error(`It never told of ${type}.`);
}
const assistantSaid = async (session: Session) =>
  (await session.messages()).filter(({ role }) => role === "assistant").map(({ parts }) => parts);

describe.each([
  ["before its first word", "nothing", "model_call_started", []],
  ["in the middle of its answer", "half", "text_delta", [[{ type: "text", text: "Half of it" }]]],
] as const)("a model that ignores its signal, %s,", (_, input, activity, kept) => {
  test("is given up by session.cancel, and the next turn begins", async () => {
    const session = await started();
    const turn = session.turn(input);
    await shows(turn, activity);
    expect(await session.cancel("Enough.")).toBe("cancelled");
    expect((await turn).outcome).toMatchObject({ type: "stopped", reason: "cancelled", message: "Enough." });
    expect(await assistantSaid(session)).toEqual(kept);
    expect((await session.turn("go on")).text).toBe("whole");
  });

  test("is given up at the turn's deadline, and the next turn begins", async () => {
    const session = await started();
    const { outcome } = await session.turn(input, { deadlineMs: 300 });
    expect(outcome).toMatchObject({ type: "stopped", reason: "deadline", code: "turn_deadline" });
    expect(await assistantSaid(session)).toEqual(kept);
    expect((await session.turn("go on")).text).toBe("whole");
  });
});
