import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { type Message, nodeId, type Segment } from "../../../src/kernel/index.js";
import { SessionHistory } from "../../../src/session/state/session-history.js";
import { readTail } from "../../../src/store/index.js";
import { encode } from "../../../src/wire/index.js";

/** A history in segments of its own, as a store has it, and how many nodes of it were read. */
class Stored {
  readonly #segments = new Map<string, Uint8Array>();
  #leaf: string | null = null;
  read = 0;
  /** What happens while something is being read. */
  meanwhile: () => void = () => {};

  get leaf(): string | null {
    return this.#leaf;
  }

  add(messages: readonly Message[], parent = this.#leaf): void {
    if (messages.length === 0) return;
    const id = `s@${this.#segments.size + 1}`;
    this.#segments.set(id, encode({ id, parent, messages } satisfies Segment));
    this.#leaf = nodeId(id, messages.length - 1);
  }

  async tail(leaf: string | null, count: number) {
    const tail = readTail({ segment: (id) => this.#segments.get(id) }, leaf, count);
    this.read += tail.messages.length;
    this.meanwhile();
    return tail;
  }
}

let nth = 0;
const said = (text = String(nth++)): Message => ({ id: `m${nth}`, role: "user", parts: [{ type: "text", text }] });
const record = (): Message => ({ id: `r${nth++}`, role: "record", parts: [], record: { type: "x", body: 1 } });
const many = (count: number) => Array.from({ length: count }, () => said());
const conversation = (messages: readonly Message[]) => messages.filter(({ role }) => role !== "record");

function storedHistory(...turns: readonly (readonly Message[])[]): { stored: Stored; all: Message[] } {
  const stored = new Stored();
  for (const turn of turns) stored.add(turn);
  return { stored, all: conversation(turns.flat()) };
}

describe("a history", () => {
  test("of which only the end is wanted is read only there, once, however long it is", async () => {
    const { stored, all } = storedHistory(...Array.from({ length: 500 }, () => many(4)));
    const past = new SessionHistory(stored, { leaf: stored.leaf, messageCount: 2_000 });
    expect(await past.count()).toBe(2_000);
    expect(stored.read).toBe(0);
    expect(await past.slice(-10)).toEqual(all.slice(-10));
    expect(stored.read).toBe(10);
    expect(await past.from(1_980)).toEqual({ start: 1_980, messages: all.slice(1_980) });
    expect(await past.slice(1_985, 1_990)).toEqual(all.slice(1_985, 1_990));
    expect(stored.read).toBe(20);
    expect(await past.read()).toEqual(all);
    expect(stored.read).toBe(2_000);
  });

  test("that nobody has counted is read as a whole to be counted, and then is", async () => {
    const { stored, all } = storedHistory(many(4), [record()], many(3));
    const past = new SessionHistory(stored, { leaf: stored.leaf });
    expect(past.known).toBeUndefined();
    expect(await past.slice(-2)).toEqual(all.slice(-2));
    expect(past.known).toBe(7);
  });

  test("goes on growing while it is being read, and while nothing of it was read yet", async () => {
    const { stored, all } = storedHistory(many(4), many(4));
    const past = new SessionHistory(stored, { leaf: stored.leaf, messageCount: 8 });
    const early = many(2);
    past.grow(early);
    const late = many(2);
    stored.meanwhile = () => {
      stored.meanwhile = () => {};
      past.grow([...late, record()]);
    };
    expect(await past.slice(6)).toEqual([...all, ...early, ...late].slice(6));
    expect(past.known).toBe(12);
    expect(await past.read()).toEqual([...all, ...early, ...late]);
  });

  test("that is left for another frame while it is being read is not part of that one", async () => {
    const { stored } = storedHistory(many(4), many(4));
    const past = new SessionHistory(stored, { leaf: stored.leaf, messageCount: 8 });
    const begun = many(2);
    stored.meanwhile = () => past.restart(begun);
    expect(await past.read()).toEqual(begun);
    expect(await past.slice(-1)).toEqual(begun.slice(-1));
    expect(past.known).toBe(2);
  });

  test("knows that something of it was cut off from when that is added or read, until it begins anew", async () => {
    const cut: Message = { ...said(), role: "assistant", interrupted: true };
    const { stored } = storedHistory([said(), cut], many(4));
    const past = new SessionHistory(stored, { leaf: stored.leaf, messageCount: 6 });
    await past.from(2);
    expect(past.hasCuts).toBe(false);
    await past.read();
    expect(past.hasCuts).toBe(true);
    past.restart([said()]);
    expect(past.hasCuts).toBe(false);
    past.grow([said(), cut]);
    expect(past.hasCuts).toBe(true);
  });

  test.each([7, 9])("with another number of messages than its head says (%i) is damaged, every time", async (said) => {
    const { stored } = storedHistory(many(4), many(4));
    const past = new SessionHistory(stored, { leaf: stored.leaf, messageCount: said });
    for (let n = 0; n < 2; n++) await expect(past.read()).rejects.toMatchObject({ code: "history_damaged" });
  });

  test("says of anything what a list of its messages would", async () => {
    const place = fc.integer({ min: -12, max: 12 });
    const turn = fc.array(fc.boolean(), { minLength: 1, maxLength: 5 });
    const step = fc.oneof(
      fc.record({ do: fc.constant("grow" as const), turn }),
      fc.record({ do: fc.constant("restart" as const), turn }),
      fc.record({ do: fc.constant("slice" as const), from: place, to: fc.option(place, { nil: undefined }) }),
      fc.record({ do: fc.constant("count" as const) }),
      fc.record({ do: fc.constant("read" as const) }),
    );
    const made = (turn: readonly boolean[]) => turn.map((isRecord) => (isRecord ? record() : said()));
    await fc.assert(
      fc.asyncProperty(
        fc.array(turn, { maxLength: 6 }),
        fc.boolean(),
        fc.array(step),
        async (turns, counted, steps) => {
          const { stored, all } = storedHistory(...turns.map(made));
          const head = { leaf: stored.leaf, ...(counted && { messageCount: all.length }) };
          const past = new SessionHistory(stored, head);
          let expected = all;
          for (const step of steps) {
            if (step.do === "slice") {
              expect(await past.slice(step.from, step.to)).toEqual(expected.slice(step.from, step.to));
            } else if (step.do === "count") expect(await past.count()).toBe(expected.length);
            else if (step.do === "read") expect(await past.read()).toEqual(expected);
            else {
              const messages = made(step.turn);
              expected = step.do === "grow" ? [...expected, ...conversation(messages)] : conversation(messages);
              past[step.do](messages);
            }
          }
        },
      ),
    );
  });
});
