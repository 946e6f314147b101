import type { Session, Troupe, TroupeOptions, Turn } from "troupe";
import { describe, expect, test } from "vitest";
import { Elsewhere } from "../../support/elsewhere.js";
import { fixture, refusalOf, startTroupe, tempFolder, until } from "../../support/runtime.js";

const INPUT = "call look\nsay a|<hang>";
const LOOK = { module: fixture("tools/thread-id.mjs") };
const stopped = { type: "stopped", reason: "cancelled", code: "cancelled", message: "Enough." };

async function optionsOf(): Promise<TroupeOptions> {
  return {
    sessionWorkers: 1,
    model: fixture("models/obeys.mjs"),
    tools: { look: LOOK },
    store: { path: await tempFolder() },
    journal: true,
  };
}

/** How the first runtime ends in the middle of the turn's second model call. */
const ENDS: Readonly<Record<string, (options: TroupeOptions) => Promise<void>>> = {
  "kill -9": async (options) => {
    const first = new Elsewhere(options, { input: INPUT, extras: { key: "k" } });
    await first.says("text_delta");
    await first.kill();
  },
  "close()": async (options) => {
    const first = await startTroupe({ ...options, drainMs: 1 });
    const turn = (await first.session("s")).turn(INPUT, { key: "k" });
    for await (const { type } of turn) if (type === "text_delta") break;
    await first.close();
    expect(await refusalOf(turn)).toMatchObject({ code: "turn_suspended" });
  },
};

/** What stops the turn in the next runtime; each says how it was told. */
const STOPS: Readonly<Record<string, (troupe: Troupe, session: Session, handle: Turn) => Promise<unknown>>> = {
  "session.cancel": (_, session) => session.cancel("Enough."),
  "troupe.cancelTurn": (troupe) => troupe.cancelTurn("s", "t1", "Enough."),
  "the handle of its key": async (_troupe, _session, handle) => {
    handle.cancel("Enough.");
    return "cancelled";
  },
};

describe.each(Object.keys(ENDS))("a turn that was under way at %s", (end) => {
  test.each(Object.keys(STOPS))(
    "and goes on in the next runtime is stopped by %s, and who asks for its key is told",
    async (stop) => {
      const options = await optionsOf();
      await ENDS[end]?.(options);
      const troupe = await startTroupe(options);
      const session = await troupe.session("s");
      const handle = session.turn(INPUT, { key: "k" });
      await until("it goes on", async () => (await session.view()).running);
      expect(await STOPS[stop]?.(troupe, session, handle)).toBe("cancelled");
      const { outcome, turnId, toolCalls } = await handle;
      expect([outcome, turnId]).toEqual([stopped, "t1"]);
      // What was done before is part of it, and was not done again.
      expect(toolCalls.map(({ output }) => output.status)).toEqual(["success"]);
      expect(await session.turn(INPUT, { key: "k" })).toEqual(await handle);
      expect((await session.turn("say two")).text).toBe("two");
    },
  );
});

describe("troupe.cancelTurn of a session on disk that nobody has opened", () => {
  test("stops the turn that a killed process left, and no other turn", async () => {
    const options = await optionsOf();
    await ENDS["kill -9"]?.(options);
    const troupe = await startTroupe(options);
    expect(await troupe.cancelTurn("s", "t2", "Not me.")).toBe("unknown");
    expect(await troupe.cancelTurn("s", "t1", "Enough.")).toBe("cancelled");
    expect((await (await troupe.session("s")).turn(INPUT, { key: "k" })).outcome).toEqual(stopped);
    expect(await troupe.cancelTurn("s", "t1")).toBe("ended");
  });

  test("as its first call stops the turn before it does anything new", async () => {
    const options = await optionsOf();
    await ENDS["close()"]?.(options);
    const troupe = await startTroupe(options);
    expect(await troupe.cancelTurn("s", "t1", "Enough.")).toBe("cancelled");
    const { outcome, modelCalls } = await (await troupe.session("s")).turn(INPUT, { key: "k" });
    // The first call's answer was in the journal; the second was not asked for again.
    expect([outcome, modelCalls]).toEqual([stopped, 1]);
  });

  test("says of a turn that is stored that it has ended, and of one it never had that it is unknown", async () => {
    const options = await optionsOf();
    const first = await startTroupe(options);
    await (await first.session("s")).turn("say one");
    await first.close();
    const troupe = await startTroupe(options);
    expect(await troupe.cancelTurn("s", "t1")).toBe("ended");
    expect(await troupe.cancelTurn("s", "t2")).toBe("unknown");
  });
});
