import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { definePlugin, loadPlugin } from "../../src/plugin/index.js";
import { PluginInstance } from "../../src/session/plugin-instance.js";

const idle = { signal: new AbortController().signal };

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
        const captured = new PluginInstance(plugin, "s", undefined).capture();
        const again = new PluginInstance(plugin, "t", captured).capture(true);
        expect(Buffer.from(again as Uint8Array).equals(captured as Uint8Array)).toBe(true);
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
    const instance = new PluginInstance(plugin, "s", undefined);
    const call = (input: string) => instance.hook("before_turn", (context) => Object.assign(context, { input }), idle);
    expect(instance.capture()).toBeInstanceOf(Uint8Array);
    call("look");
    expect(instance.capture()).toBeUndefined();
    call("count");
    expect(instance.capture()).toBeInstanceOf(Uint8Array);
    expect(instance.capture()).toBeUndefined();
    expect(instance.capture(true)).toBeInstanceOf(Uint8Array);
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
      instance.hook("before_turn", (context) => Object.assign(context, { input }), idle);
    const parent = new PluginInstance(plugin, "parent", undefined);
    say(parent, "before");
    const child = new PluginInstance(plugin, "child", parent.capture(true));
    const atFork = Buffer.from(parent.capture(true) as Uint8Array);
    say(child, "only the child");
    expect(Buffer.from(parent.capture(true) as Uint8Array).equals(atFork)).toBe(true);
    expect(Buffer.from(child.capture(true) as Uint8Array).equals(atFork)).toBe(false);
  });
});
