import { expect, test } from "vitest";
import { systemClock } from "../../../src/async/index.js";
import { definePlugin } from "../../../src/plugin/index.js";
import { ToolsComponent } from "../../../src/session/protocol/catalog.js";
import { IDLE, isUnsaved, type Life, saveSession, settleSession } from "../../../src/session/state/session-life.js";
import { Blobs } from "../../../src/session/stored/blobs.js";
import { Component } from "../../../src/session/stored/components.js";
import { StoredSession } from "../../../src/session/stored/stored-session.js";
import { MemoryStore } from "../../support/memory-store.js";
import { inlineSession } from "../inline-session.js";

const remembers = definePlugin({
  id: "remembers",
  version: "1.0.0",
  state: () => ({ last: "" }),
  hooks: {
    beforeTurn: ({ input, state }) => {
      state.last = input;
    },
  },
});

/** Has state that nobody can store. */
const clogs = definePlugin({
  id: "clogs",
  version: "1.0.0",
  register: (registrar) => {
    registrar.hook("beforeTurn", () => undefined);
    return {
      snapshotRevision: () => {
        throw new Error("I cannot say.");
      },
      snapshot: () => null,
      restore: () => undefined,
    };
  },
});

/** A session's plugins and protocol with its store side, in this thread. */
async function savedSession(...plugins: readonly object[]) {
  const { hooks, protocol, tools, begin } = await inlineSession(plugins);
  const store = new MemoryStore();
  const now: { life: Life } = { life: IDLE };
  const stored = new StoredSession({
    id: "s",
    clock: systemClock,
    store,
    head: undefined,
    epoch: store.claim("s"),
    identity: {},
    blobs: new Blobs(store),
    journals: false,
    past: { known: 0 },
    inputs: { turnsWait: false },
    life: { giveUp: () => undefined },
  });
  const note = new Component("note");
  stored.register(note, new ToolsComponent(tools), ...hooks.slots.filter((slot) => slot !== undefined));
  const life = {
    get now() {
      return now.life;
    },
  };
  return { session: { hooks, protocol, life, stored }, stored, begin, note, now, tools };
}

test("a session that was never stored is stored by parking only when a host asked for it", async () => {
  const { session, stored, begin } = await savedSession(remembers);
  await begin("hi");
  await saveSession(session);
  expect(stored.revision).toBe(0);
  await saveSession(session, { always: true });
  expect([stored.revision, Object.keys(stored.head?.components ?? {})]).toEqual([1, ["plugin:remembers"]]);
});

test("what a hook changed behind the last write is unsaved until the session is settled", async () => {
  const { session, stored, begin } = await savedSession(remembers);
  await begin("hi");
  await saveSession(session, { always: true });
  await begin("again");
  expect(isUnsaved(session)).toBe(true);
  await settleSession(session);
  expect([stored.revision, stored.dirty]).toEqual([2, false]);
});

test("a plugin that was called and changed nothing costs no write", async () => {
  const { session, stored, begin } = await savedSession(remembers);
  await begin("hi");
  await saveSession(session, { always: true });
  await begin("hi");
  await settleSession(session);
  expect(stored.revision).toBe(1);
});

test("a plugin whose state cannot be captured fails the save, and costs the others nothing", async () => {
  const { session, stored, begin } = await savedSession(clogs, remembers);
  await begin("hi");
  await expect(saveSession(session, { always: true })).rejects.toThrow("I cannot say.");
  expect(Object.keys(stored.head?.components ?? {})).toEqual(["plugin:remembers"]);
});

test("what changes while a turn runs is left to the turn", async () => {
  const { session, stored, note, now } = await savedSession();
  note.change(new Uint8Array([1]));
  await saveSession(session, { always: true });
  note.change(new Uint8Array([2]));
  now.life = { kind: "running", turnId: "t1" };
  expect(isUnsaved(session)).toBe(false);
  await saveSession(session);
  expect([stored.revision, note.dirty]).toEqual([1, true]);
  now.life = { kind: "told", turnId: "t1" };
  await settleSession(session);
  expect([stored.revision, note.dirty]).toEqual([2, false]);
});

test("edited tools are dirty by their generation until it is stored", async () => {
  const { stored, tools } = await savedSession();
  expect(stored.dirty).toBe(false);
  tools.applyState(tools.exportState());
  expect(stored.dirty).toBe(true);
  await stored.store("tools");
  expect([stored.dirty, Object.keys(stored.head?.components ?? {})]).toEqual([false, ["tools"]]);
});
