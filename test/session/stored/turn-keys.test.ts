import { expect, test } from "vitest";
import { NO_USAGE, type TurnResult } from "../../../src/kernel/index.js";
import { type Component, ComponentReader } from "../../../src/session/stored/components.js";
import { MAX_TURN_KEYS, TurnKeys, turnKeyOf } from "../../../src/session/stored/turn-keys.js";
import { contentHash } from "../../../src/wire/index.js";

/** A head's components and their bytes, as a write leaves them. */
class Written {
  readonly components: Record<string, string> = {};
  readonly #bytes = new Map<string, Uint8Array>();

  readonly reader = () =>
    new ComponentReader(
      { component: async (hash) => this.#bytes.get(hash) },
      { sessionId: "s", components: this.components },
    );

  write(owner: Pick<Component, "name" | "encode" | "written">): string {
    const bytes = owner.encode() as Uint8Array;
    const { name } = owner;
    this.components[name] = contentHash(bytes);
    this.#bytes.set(contentHash(bytes), bytes);
    owner.written(bytes);
    return name;
  }
}

const asked = (key: string, text = "hi") => turnKeyOf(key, { parts: [{ type: "text", text }] });
const result = (turnIndex: number): TurnResult => ({
  sessionId: "s",
  turnId: `t${turnIndex}`,
  turnIndex,
  revision: turnIndex,
  outcome: { type: "finished", text: "done" },
  text: "done",
  usage: NO_USAGE,
  modelCalls: 0,
  toolCalls: [],
  issues: [],
  modelCallRecords: [],
});

test("a turn kept under a key is dirty until it is written, and found by the next life of the session", async () => {
  const written = new Written();
  const keys = new TurnKeys(written.reader);
  expect(await keys.find(asked("a"))).toBe(undefined);
  keys.keep(asked("a"), result(1));
  expect(keys.component.dirty).toBe(true);
  expect(written.write(keys.component)).toBe("turn:0");
  expect(keys.component.dirty).toBe(false);
  expect(await new TurnKeys(written.reader).find(asked("a"))).toEqual(result(1));
});

test("the same key with another input is a conflict", async () => {
  const keys = new TurnKeys(new Written().reader);
  await keys.find(asked("a"));
  keys.keep(asked("a"), result(1));
  await expect(keys.find(asked("a", "something else"))).rejects.toMatchObject({
    code: "turn_key_conflict",
    details: { key: "a", turnId: "t1" },
  });
});

test("each key has a place of its own, and the oldest makes room for the newest", async () => {
  const written = new Written();
  const keys = new TurnKeys(written.reader);
  await keys.find(asked("k1"));
  for (let index = 1; index <= MAX_TURN_KEYS + 1; index++) {
    keys.keep(asked(`k${index}`), result(index));
    expect(written.write(keys.component)).toBe(`turn:${(index - 1) % MAX_TURN_KEYS}`);
  }
  const later = new TurnKeys(written.reader);
  expect([await later.find(asked("k1")), await later.find(asked("k33"))]).toEqual([undefined, result(33)]);
  later.keep(asked("k34"), result(34));
  expect(written.write(later.component)).toBe("turn:1");
});

test("a turn that went on in another frame is kept again in its own place", async () => {
  const written = new Written();
  const keys = new TurnKeys(written.reader);
  await keys.find(asked("a"));
  keys.keep(asked("a"), result(1));
  written.write(keys.component);
  keys.keep(asked("a"), result(2));
  expect(written.write(keys.component)).toBe("turn:0");
  expect(await keys.find(asked("a"))).toEqual(result(2));
});
