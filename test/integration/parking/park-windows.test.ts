import { scriptedModel } from "troupe";
import { describe, expect, test } from "vitest";
import { startTroupe } from "../../support/runtime.js";

const ECHO = scriptedModel({ turns: [[{ text: "{input}" }]] });

describe("messages that meet a session on its way out of memory", () => {
  test("10,000 of them: none is lost, none comes twice, and each session's keep their order", {
    timeout: 120_000,
  }, async () => {
    const troupe = await startTroupe({ sessionWorkers: 2, maxResident: 3, parkAfterMs: 0, model: ECHO });
    const sessions = await Promise.all(Array.from({ length: 400 }, (_, n) => troupe.session(`s${n}`)));
    // Waves that differ from session to session: whatever a session is doing, somebody meets it at it.
    const talk = async (session: (typeof sessions)[number], n: number) => {
      const answers: string[] = [];
      for (let sent = 0; sent < 25; ) {
        const wave = Math.min(1 + ((n + sent) % 4), 25 - sent);
        const turns = Array.from({ length: wave }, () => session.turn(`m${sent++}`));
        if (n % 3 === 0) void session.park();
        for (const { text } of await Promise.all(turns)) answers.push(text);
        if (n % 5 === 0) await session.inputs();
      }
      return answers;
    };
    const answers = await Promise.all(sessions.map(talk));
    const sent = Array.from({ length: 25 }, (_, n) => `m${n}`);
    for (const each of answers) expect(each).toEqual(sent);
    for (const session of sessions) {
      const inputs = (await session.messages()).filter(({ role }) => role === "user");
      expect(inputs.map(({ parts }) => parts.map((part) => (part.type === "text" ? part.text : "")).join(""))).toEqual(
        sent,
      );
    }
    expect((await troupe.stats()).turns).toEqual({ asked: 10_000, finished: 10_000, refused: 0 });
  });

  test("inputs queued across the windows are each taken once, in order", async () => {
    const troupe = await startTroupe({ sessionWorkers: 1, maxResident: 1, parkAfterMs: 0, model: ECHO });
    const sessions = await Promise.all(["a", "b", "c"].map((id) => troupe.session(id)));
    for (let n = 0; n < 20; n++) {
      for (const session of sessions) await session.enqueue(`m${n}`);
    }
    for (const session of sessions) {
      await session.turn("last");
      const text = (await session.messages())
        .filter(({ role }) => role === "user")
        .flatMap(({ parts }) => parts.map((part) => (part.type === "text" ? part.text : "")))
        .flatMap((input) => input.split("\n\n"));
      expect(text.filter((input) => input !== "last")).toEqual(Array.from({ length: 20 }, (_, n) => `m${n}`));
    }
  });
});
