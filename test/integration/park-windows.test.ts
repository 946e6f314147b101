import { createTroupe, scriptedModel, type TroupeOptions } from "troupe";
import { describe, expect, test } from "vitest";
import { openLmdbReader } from "../../dist/src/store/index.js";
import { oneToolCall, PATIENT, plugin, startTroupe, tempFolder } from "../support/runtime.js";

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

describe("the same work with and without parking", () => {
  test("leaves the same bytes in the store", async () => {
    const kept = await rowsAfter({ parkAfterMs: 600_000 });
    expect(kept.heads.length).toBe(4);
    expect(await rowsAfter({ parkAfterMs: 0, maxResident: 1 })).toEqual(kept);
  });
});

/** What is stored after a script of turns, settings, inputs and forks, but for the random names of operations. */
async function rowsAfter(options: TroupeOptions) {
  const path = await tempFolder();
  const troupe = await createTroupe({
    ...options,
    store: { path },
    plugins: [{ module: plugin("counter"), ...PATIENT }],
    model: oneToolCall("count"),
  });
  for (const id of ["a", "b", "c"]) {
    const session = await troupe.session(id);
    await session.turn("one");
    await session.turn("two");
    await session.configure({ instructions: `You are ${id}.` });
    await session.append({ nodes: [{ kind: "message", message: { role: "user", text: "By the way." } }] });
    await session.turn("three");
  }
  const child = await (await troupe.session("a")).fork({ id: "a/child" });
  await child.turn("four");
  await (await troupe.session("b")).setBudget({ maxTokens: 1_000_000 });
  await troupe.close();
  const reader = openLmdbReader(path);
  try {
    const heads = [...reader.sessionIds()].map((id) => {
      // Which runtime's call wrote it last is random, too.
      const { operation, lastCall: _call, ...head } = reader.head(id) ?? { operation: "" };
      return { ...head, operation: operation.replace(/[0-9a-f]{8}-[0-9a-f-]{27}(:\d+)?/g, "…") };
    });
    const segments = heads.flatMap((head) => {
      if (!("revision" in head)) return [];
      return Array.from({ length: head.revision }, (_, n) => {
        const id = `${head.sessionId}@${n + 1}`;
        const bytes = reader.segment(id);
        return [id, bytes && Buffer.from(bytes).toString("base64")];
      });
    });
    const hashes = new Set(heads.flatMap((head) => ("components" in head ? Object.values(head.components) : [])));
    const components = [...hashes].sort().map((hash) => {
      const bytes = reader.component(hash);
      return [hash, bytes && Buffer.from(bytes).toString("base64")];
    });
    return { heads, segments, components };
  } finally {
    reader.close();
  }
}
