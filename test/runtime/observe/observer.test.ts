import { describe, expect, it } from "vitest";
import type { TroupeError } from "../../../src/kernel/index.js";
import { Observer } from "../../../src/runtime/observe/observers.js";
import type { Observed } from "../../../src/session/index.js";

const committed = (revision: number): Observed => ({
  cursor: `c${revision}`,
  event: { type: "committed", revision, turnIndex: revision },
});
const text = (words: string, place: number): Observed => ({
  cursor: `c${place}`,
  event: { type: "activity", turnId: "t1", activity: { type: "text_delta", blockId: "b", text: words, at: 1 } },
});

function observer(cursor?: string) {
  const starts: unknown[] = [];
  let stops = 0;
  const observer = new Observer(
    {
      start: async (from) => {
        starts.push(from);
        return "c0";
      },
      stop: () => {
        stops++;
      },
    },
    { from: cursor === undefined ? "now" : { cursor } },
  );
  return { observer, starts, stops: () => stops };
}

describe("an observer", () => {
  it("begins when it is first read, behind the cursor it was given", async () => {
    const { observer: reader, starts } = observer("c7");
    expect(starts).toEqual([]);
    const reading = reader.next();
    reader.receive(committed(8));
    expect(await reading).toEqual({ done: false, value: committed(8) });
    expect(starts).toEqual([{ cursor: "c7" }]);
  });

  it("finds neighbouring deltas joined when it was slow, in their order with the rest", async () => {
    const { observer: reader } = observer();
    reader.receive(text("a", 1));
    reader.receive(text("b", 2));
    reader.receive(committed(3));
    reader.receive(text("c", 4));
    const seen = [await reader.next(), await reader.next(), await reader.next()].map(({ value }) => value);
    expect(seen).toEqual([text("ab", 2), committed(3), text("c", 4)]);
  });

  it("that never reads loses the oldest, and is told where", async () => {
    const { observer: reader } = observer();
    for (let revision = 1; revision <= 4_097; revision++) reader.receive(committed(revision));
    expect((await reader.next()).value).toEqual({ cursor: "c2049", event: { type: "gap", reason: "trimmed" } });
    expect((await reader.next()).value).toEqual(committed(2_050));
  });

  it("resumes behind what it received when its worker was replaced", async () => {
    const { observer: reader, starts } = observer();
    const reading = reader.next();
    reader.receive(committed(5));
    await reading;
    await reader.resume();
    expect(starts).toEqual(["now", { cursor: "c5" }]);
  });

  it("ends when its reader leaves, and says so once", async () => {
    const { observer: reader, stops } = observer();
    const waiting = reader.next();
    await reader.return();
    expect(await waiting).toEqual({ done: true, value: undefined });
    reader.receive(committed(1));
    expect(await reader.next()).toEqual({ done: true, value: undefined });
    await reader.return();
    expect(stops()).toBe(1);
  });

  it("throws what ended it, once, after what was still unread", async () => {
    const { observer: reader } = observer();
    reader.receive(committed(1));
    reader.fail(Object.assign(new Error("gone"), { code: "closed" }) as unknown as TroupeError);
    expect((await reader.next()).value).toEqual(committed(1));
    await expect(reader.next()).rejects.toThrow("gone");
    expect(await reader.next()).toEqual({ done: true, value: undefined });
  });
});
