import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { definePlugin, type LoadedPlugin, loadPlugin } from "../../src/plugin/index.js";
import { PluginInstance } from "../../src/session/plugin-instance.js";

const idle = { signal: new AbortController().signal };

const host = { call: () => Promise.reject(new Error("Nobody asks for host services here.")) };
const open = (plugin: LoadedPlugin, sessionId: string, captured?: Uint8Array) =>
  new PluginInstance(plugin, { sessionId, captured, init: undefined, host, development: false });
const stateOf = (instance: PluginInstance) => instance.capture(true).state as Uint8Array;

const holding = async (state: unknown) =>
  loadPlugin(definePlugin({ id: "holds", version: "1.0.0", state: () => state }), undefined, "test");

/** State as plugins keep it: plain data of every sort that can be saved. A key `__proto__` is refused by the codec. */
const anyState = fc.anything({
  key: fc.string().filter((key) => key !== "__proto__"),
  withBigInt: false,
  withDate: true,
  withMap: false,
  withSet: false,
  withTypedArray: false,
  withNullPrototype: false,
  values: [fc.string(), fc.integer(), fc.double(), fc.boolean(), fc.constant(null), fc.uint8Array()],
});

describe("a plugin instance", () => {
  test("restored from what was captured captures the same bytes again", async () => {
    await fc.assert(
      fc.asyncProperty(anyState, async (state) => {
        const plugin = await holding(state);
        const captured = stateOf(open(plugin, "s"));
        const again = stateOf(open(plugin, "t", captured));
        expect(Buffer.from(again).equals(captured)).toBe(true);
      }),
      { numRuns: 500 },
    );
  });

  test("says that nothing changed until something does", async () => {
    const plugin = await loadPlugin(
      definePlugin({
        id: "counts",
        version: "1.0.0",
        state: () => ({ n: 0 }),
        hooks: { beforeTurn: ({ state, input }) => void (input === "count" && state.n++) },
      }),
      undefined,
      "test",
    );
    const instance = open(plugin, "s");
    const call = (input: string) =>
      instance.hook("before_turn", 0, (context) => Object.assign(context, { input }), idle);
    expect(instance.capture().state).toBeInstanceOf(Uint8Array);
    call("look");
    expect(instance.capture().state).toBeUndefined();
    call("count");
    expect(instance.capture().state).toBeInstanceOf(Uint8Array);
    expect(instance.capture().state).toBeUndefined();
    expect(instance.capture(true).state).toBeInstanceOf(Uint8Array);
  });

  test("of a fork shares nothing with its parent's: what one changes the other never sees", async () => {
    const plugin = await loadPlugin(
      definePlugin({
        id: "nests",
        version: "1.0.0",
        state: () => ({ list: [{ deep: [] as string[] }] }),
        hooks: { beforeTurn: ({ state, input }) => void state.list[0]?.deep.push(input) },
      }),
      undefined,
      "test",
    );
    const say = (instance: PluginInstance, input: string) =>
      instance.hook("before_turn", 0, (context) => Object.assign(context, { input }), idle);
    const parent = open(plugin, "parent");
    say(parent, "before");
    const child = open(plugin, "child", stateOf(parent));
    const atFork = Buffer.from(stateOf(parent));
    say(child, "only the child");
    expect(Buffer.from(stateOf(parent)).equals(atFork)).toBe(true);
    expect(Buffer.from(stateOf(child)).equals(atFork)).toBe(false);
  });
});
