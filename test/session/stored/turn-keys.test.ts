import { expect, test } from "vitest";
import { NO_USAGE, type TurnResult } from "../../../src/kernel/index.js";
import { ComponentReader } from "../../../src/session/stored/components.js";
import { SessionRows } from "../../../src/session/stored/session-rows.js";
import { MAX_TURN_KEYS, TurnKeys } from "../../../src/session/stored/turn-keys.js";
import { encode } from "../../../src/wire/index.js";

/** A session's rows of one table, as writes leave them, and the components an older release left. */
class Written {
  readonly #rows = new Map<string, Uint8Array>();
  readonly former: Record<string, Uint8Array> = {};

  rows() {
    const rows = async () => [...this.#rows].map(([key, value]) => ({ table: "turn_keys", key, value, version: 1 }));
    return new SessionRows({ store: { rows }, sessionId: "s", table: "turn_keys" });
  }

  keys(rows = this.rows()) {
    const names = Object.keys(this.former);
    const components = async () => new Map(names.map((name) => [name, this.former[name] as Uint8Array]));
    const head = { sessionId: "s", components: Object.fromEntries(names.map((name) => [name, name])) };
    return new TurnKeys(rows, () => new ComponentReader({ component: async () => undefined, components }, head));
  }

  write(owner: SessionRows): string[] {
    const changes = owner.encode();
    for (const { key, value } of changes) this.#rows.set(key, value as Uint8Array);
    owner.written(changes);
    return changes.map(({ key }) => key);
  }
}

const namer = new Written().keys();
const asked = (key: string, text = "hi") => namer.nameOf(key, { parts: [{ type: "text", text }] }, { hidden: false });
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
  const rows = written.rows();
  const keys = written.keys(rows);
  expect(await keys.find(asked("a"))).toBe(undefined);
  keys.keep(asked("a"), result(1));
  expect(rows.dirty).toBe(true);
  expect(written.write(rows)).toEqual(["0"]);
  expect(rows.dirty).toBe(false);
  expect(await written.keys().find(asked("a"))).toEqual(result(1));
});

test("the same key with another input is a conflict", async () => {
  const keys = new Written().keys();
  await keys.find(asked("a"));
  keys.keep(asked("a"), result(1));
  await expect(keys.find(asked("a", "something else"))).rejects.toMatchObject({
    code: "turn_key_conflict",
    details: { key: "a", turnId: "t1" },
  });
});

test("each key has a place of its own, and the oldest makes room for the newest", async () => {
  const written = new Written();
  const rows = written.rows();
  const keys = written.keys(rows);
  await keys.find(asked("k1"));
  for (let index = 1; index <= MAX_TURN_KEYS + 1; index++) {
    keys.keep(asked(`k${index}`), result(index));
    expect(written.write(rows)).toEqual([String((index - 1) % MAX_TURN_KEYS)]);
  }
  const laterRows = written.rows();
  const later = written.keys(laterRows);
  expect([await later.find(asked("k1")), await later.find(asked("k33"))]).toEqual([undefined, result(33)]);
  later.keep(asked("k34"), result(34));
  expect(written.write(laterRows)).toEqual(["1"]);
});

test("a turn that went on in another frame is kept again in its own place", async () => {
  const written = new Written();
  const rows = written.rows();
  const keys = written.keys(rows);
  await keys.find(asked("a"));
  keys.keep(asked("a"), result(1));
  written.write(rows);
  keys.keep(asked("a"), result(2));
  expect(written.write(rows)).toEqual(["0"]);
  expect(await keys.find(asked("a"))).toEqual(result(2));
});

test("a turn an older release kept in a component is found, until its place is taken", async () => {
  const written = new Written();
  written.former["turn:0"] = encode({ ...asked("old"), result: result(1) });
  const rows = written.rows();
  const keys = written.keys(rows);
  expect(await keys.find(asked("old"))).toEqual(result(1));
  keys.keep(asked("old"), result(2));
  expect(written.write(rows)).toEqual(["0"]);
  expect(await written.keys().find(asked("old"))).toEqual(result(2));
});
