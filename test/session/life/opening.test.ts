import { expect, test } from "vitest";
import { definePlugin } from "../../../src/plugin/index.js";
import { openSession } from "../../../src/session/life/open-session.js";
import { configureSession } from "../../../src/session/life/requests.js";
import type { SessionActor } from "../../../src/session/life/session-actor.js";
import { MemoryStore } from "../../support/memory-store.js";
import { memoryServices } from "../turn/memory-session.js";
import { openActor, unheard } from "./memory-actor.js";

const WRITES: readonly string[] = ["commit", "record", "clearJournal", "changeRows", "release"];

/** The store, and what was read from it, each as one ask. */
function watched(store: MemoryStore) {
  const asks: string[] = [];
  const proxy = new Proxy(store, {
    get(target, name) {
      const value: unknown = Reflect.get(target, name, target);
      if (typeof value !== "function") return value;
      return (...given: unknown[]) => {
        if (!WRITES.includes(String(name))) asks.push(String(name));
        return value.apply(target, given);
      };
    },
  });
  return { asks, store: proxy };
}

/** Keeps something of its own for each session, and counts. */
const keeper = (id: string) =>
  definePlugin({
    id,
    version: "1.0.0",
    state: () => ({ turns: 0 }),
    hooks: {
      beforeTurn: ({ state }) => {
        state.turns++;
      },
    },
  });

const plugins = ["a", "b", "c", "d", "e"].map((id) => keeper(`test.${id}`));

async function busySession(actor: SessionActor): Promise<void> {
  const session = await actor.opened();
  await configureSession(session, { instructions: "Be short." });
  await session.spending.set({ maxTokens: 1_000_000 });
  for (let n = 1; n <= 40; n++) await actor.turn(`hello ${n}`, unheard, { key: `key ${n}` });
}

test.each([false, true])(
  "opening a parked session and its first turn by a key take at most 3 asks (journals: %s)",
  async (journals) => {
    const store = new MemoryStore();
    const first = openActor(await memoryServices({ plugins, journals }, store));
    await busySession(first);
    await first.parked();
    expect(store.backend.head("s")?.turnIndex).toBe(40);
    expect(Object.keys(store.backend.head("s")?.components ?? {}).length).toBeGreaterThanOrEqual(6);

    const { asks, store: counted } = watched(store);
    const services = await memoryServices({ plugins, journals }, counted);
    const actor = openActor(services, { open: (chart) => openSession(services, "s", { chart, take: "free" }) });
    await actor.opened();
    expect(asks).toEqual(["open"]);
    expect((await actor.turn("hello 40", unheard, { key: "key 40" })).turnIndex).toBe(40);
    expect(asks).toEqual(["open", "rows"]);
    expect((await actor.turn("hello 41", unheard, { key: "key 41" })).turnIndex).toBe(41);
    expect(asks).toEqual(["open", "rows", "tail"]);
  },
);

test("turns that were asked for by a key leave no dead components behind", async () => {
  const store = new MemoryStore();
  const actor = openActor(await memoryServices({}, store));
  for (let n = 1; n <= 100; n++) await actor.turn(`hello ${n}`, unheard, { key: `key ${n}` });
  expect(store.backend.keys("components", undefined, 1_000)).toEqual([]);
  expect(store.backend.rows({ table: "turn_keys", session: "s", limit: 1_000 })).toHaveLength(32);
});

test("opening a session writes nothing, and one that nobody stored leaves no row", async () => {
  const store = new MemoryStore();
  const actor = openActor(await memoryServices({ journals: true }, store));
  await actor.opened();
  actor.leave();
  await actor.ended();
  expect({ ...store.backend.writes }).toEqual({ transactions: 0, records: 0 });
  for (const table of ["heads", "segments", "components", "journals", "rows"] as const)
    expect(store.backend.keys(table, undefined, 10)).toEqual([]);
});
