import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { systemClock } from "../../../src/async/index.js";
import type { TurnResult } from "../../../src/kernel/index.js";
import type { Observed, ObservedEvent } from "../../../src/session/calls/observed.js";
import { SessionLog } from "../../../src/session/worker/session-log.js";

const text = (words: string, blockId = "b"): ObservedEvent => ({
  type: "activity",
  turnId: "t1",
  activity: { type: "text_delta", blockId, text: words, at: 1 },
});
const committed = (revision: number): ObservedEvent => ({ type: "committed", revision, turnIndex: revision });

function read(observation: SessionLog, cursor?: string) {
  const seen: Observed[] = [];
  const leave = observation.subscribe(cursor === undefined ? "now" : { cursor }, (observed) => seen.push(observed));
  return { seen, leave, events: () => seen.map(({ event }) => event) };
}

describe("an observation", () => {
  it("shows a reader what happens from now on", () => {
    const observation = new SessionLog("s", systemClock);
    observation.push(committed(1));
    const reader = read(observation);
    observation.push(committed(2));
    expect(reader.events()).toEqual([committed(2)]);
  });

  // turn §8.92
  it("gives a reader that comes back what it missed, and nothing twice", () => {
    const observation = new SessionLog("s", systemClock);
    const first = read(observation);
    observation.push(text("a"));
    first.leave();
    observation.push(text("b"));
    observation.push(text("c"));
    observation.push(committed(1));
    const again = read(observation, first.seen.at(-1)?.cursor);
    expect(again.events()).toEqual([text("bc"), committed(1)]);
  });

  it("never joins what somebody has seen with what nobody has", () => {
    const observation = new SessionLog("s", systemClock);
    const cursor = observation.cursor;
    observation.push(text("a"));
    const reader = read(observation, cursor);
    reader.leave();
    observation.push(text("b"));
    expect(read(observation, reader.seen.at(-1)?.cursor).events()).toEqual([text("b")]);
    expect(read(observation, cursor).events()).toEqual([text("a"), text("b")]);
  });

  it("does not join deltas of different blocks", () => {
    const observation = new SessionLog("s", systemClock);
    const { cursor } = observation;
    observation.push(text("a", "1"));
    observation.push(text("b", "2"));
    expect(read(observation, cursor).events()).toEqual([text("a", "1"), text("b", "2")]);
  });

  it("has what a running turn has shown, also when nobody has read anything of it", () => {
    const observation = new SessionLog("s", systemClock);
    observation.tell({ type: "turn_started", version: 1, turnId: "t1", turnIndex: 1, at: 5 });
    for (const words of ["It ", "is ", "21."])
      observation.tell({ type: "text_delta", blockId: "b", text: words, at: 6 });
    expect([observation.running, observation.shownText]).toEqual([{ turnId: "t1", since: 5, start: 1 }, "It is 21."]);
  });

  it("has what a turn came to that nobody has read anything of, and gives up the rest of it", () => {
    const observation = new SessionLog("s", systemClock);
    const result = { turnId: "t1", turnIndex: 1, revision: 1 } as TurnResult; // of a result only this is looked at
    const { cursor } = observation;
    observation.tell({ type: "turn_started", version: 1, turnId: "t1", turnIndex: 1, at: 5 });
    observation.tell({ type: "text_delta", blockId: "b", text: "21.", at: 6 });
    observation.tell({ type: "turn_finished", result, at: 7 });
    observation.trim();
    expect(observation.resultOf("t1")).toBe(result);
    const seen: string[] = [];
    observation.subscribe("turn", ({ event }) =>
      seen.push(event.type === "activity" ? event.activity.type : event.type),
    );
    expect(seen).toEqual(["turn_finished", "committed"]);
    expect(read(observation, cursor).events()[0]).toEqual({ type: "gap", reason: "trimmed" });
  });

  it("announces what is too long ago", () => {
    const observation = new SessionLog("s", systemClock);
    const { cursor } = observation;
    for (let revision = 1; revision <= 2_050; revision++) observation.push(committed(revision));
    const reader = read(observation, cursor);
    expect(reader.events()[0]).toEqual({ type: "gap", reason: "trimmed" });
    expect(reader.events()[1]).toEqual(committed(3));
    expect(reader.events()).toHaveLength(2_049);
  });

  it("keeps a long answer whole that one reader was told word by word: another gets it joined, or the rest of it", () => {
    const observation = new SessionLog("s", systemClock);
    const { cursor } = observation;
    const first = read(observation);
    const words = Array.from({ length: 5_000 }, (_, nth) => `${nth} `);
    for (const word of words) observation.push(text(word));
    const textOf = (reader: typeof first) =>
      reader
        .events()
        .map((event) => (event.type === "activity" && "text" in event.activity ? event.activity.text : "?"));
    const whole = textOf(read(observation, cursor));
    expect([whole.join(""), whole.length < 2_049]).toEqual([words.join(""), true]);
    for (const nth of [0, 1, 1_024, 2_499, 4_999])
      expect(textOf(read(observation, first.seen[nth]?.cursor)).join("")).toBe(words.slice(nth + 1).join(""));
  });

  // turn §8.91
  it("announces that a cursor is of another life, and of a place that has not been", () => {
    const { cursor } = new SessionLog("s", systemClock);
    const ahead = new SessionLog("s", systemClock);
    const other = new SessionLog("s", systemClock);
    other.push(committed(1));
    expect(read(other, cursor).events()).toEqual([{ type: "gap", reason: "unavailable" }, committed(1)]);
    ahead.push(committed(1));
    const later = read(ahead).seen;
    ahead.push(committed(2));
    expect(read(new SessionLog("s", systemClock), later[0]?.cursor).events()).toEqual([
      { type: "gap", reason: "unavailable" },
    ]);
  });

  it("goes on behind a gap without losing or repeating anything", () => {
    const other = new SessionLog("s", systemClock);
    other.push(committed(1));
    const gap = read(other, new SessionLog("s", systemClock).cursor).seen[0];
    other.push(committed(2));
    expect(read(other, gap?.cursor).events()).toEqual([committed(1), committed(2)]);
  });

  // turn §8.91
  it.each([
    ["of another session", new SessionLog("other", systemClock).cursor],
    ["that is no cursor", "nonsense"],
    ["that is empty", ""],
    ["with a place that is none", Buffer.from(JSON.stringify(["s", "x", -1])).toString("base64url")],
  ])("refuses a cursor %s", (_, cursor) => {
    expect(() => read(new SessionLog("s", systemClock), cursor)).toThrow(
      expect.objectContaining({ code: "cursor_invalid" }),
    );
  });

  // turn §8.92
  it("gives any reader, however often it leaves and returns, all text once and in order", () => {
    fc.assert(
      fc.property(
        fc.array(
          fc.oneof(fc.string({ minLength: 1, maxLength: 3 }), fc.constantFrom<"leave" | "return">("leave", "return")),
        ),
        (steps) => {
          const observation = new SessionLog("s", systemClock);
          let { cursor } = observation;
          let leave: (() => void) | undefined;
          let seen = "";
          let said = "";
          const join = () => {
            leave ??= observation.subscribe(cursor === undefined ? "now" : { cursor }, (observed) => {
              cursor = observed.cursor;
              if (observed.event.type === "activity" && observed.event.activity.type === "text_delta")
                seen += observed.event.activity.text;
            });
          };
          for (const step of steps) {
            if (step === "leave") {
              leave?.();
              leave = undefined;
            } else if (step === "return") join();
            else {
              said += step;
              observation.push(text(step));
            }
          }
          join();
          expect(seen).toBe(said);
        },
      ),
      { numRuns: 1_000 },
    );
  });
});
