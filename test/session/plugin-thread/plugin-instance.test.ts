import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { definePlugin, type LoadedPlugin, loadPlugin } from "../../../src/plugin/index.js";
import { PluginInstance } from "../../../src/session/plugin-thread/plugin-instance.js";
import { decode } from "../../../src/wire/index.js";

const idle = { signal: new AbortController().signal };

const host = () => Promise.reject(new Error("Nobody asks for host services here."));
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

/** A plugin that writes what it is given: plain state, and pieces of it as blobs. */
interface Kept {
  readonly state: unknown;
  readonly blobs: [name: string, data: Uint8Array][];
  revision: bigint;
}

/** Registers for every session; `kept` finds what the session's instance holds, live. */
async function writing(initial: () => Kept) {
  const kept = new Map<string, Kept>();
  const plugin = await loadPlugin(
    definePlugin({
      id: "writes",
      version: "1.0.0",
      register: (_registrar, { sessionId }) => {
        kept.set(sessionId, initial());
        const own = () => kept.get(sessionId) as Kept;
        return {
          snapshotRevision: () => own().revision,
          snapshot: (writer) => {
            const { state, blobs } = own();
            for (const [name, data] of blobs) writer.writeBlob(name, data);
            return { state, names: blobs.map(([name]) => name) } as never;
          },
          restore: ({ state: stored, revision }, reader) => {
            const { state, names } = stored as unknown as { state: unknown; names: string[] };
            const blobs = names.map((name): Kept["blobs"][number] => [name, reader.readBlob(name) as Uint8Array]);
            kept.set(sessionId, { state, blobs, revision });
          },
        };
      },
    }),
    undefined,
    "test",
  );
  return { plugin, kept: (sessionId: string) => kept.get(sessionId) as Kept };
}

const anyKept = fc.record({
  state: anyState,
  blobs: fc.uniqueArray(fc.tuple(fc.string(), fc.uint8Array()), { selector: ([name]) => name }),
  revision: fc.bigInt({ min: 0n, max: 2n ** 64n - 1n }),
});

describe("a plugin instance", () => {
  // §15.55
  test("that writes its own snapshot, restored from it, writes the same bytes again, blobs and all", async () => {
    await fc.assert(
      fc.asyncProperty(anyKept, async (initial) => {
        const { plugin } = await writing(() => initial);
        const captured = stateOf(open(plugin, "s"));
        const again = stateOf(open(plugin, "t", captured));
        expect(Buffer.from(again).equals(captured)).toBe(true);
      }),
      { numRuns: 300 },
    );
  });

  // §15.55
  test("that writes its own snapshot shares nothing with its fork's, not even the bytes of a blob", async () => {
    await fc.assert(
      fc.asyncProperty(anyKept, fc.boolean(), async (initial, parentChanges) => {
        const { plugin, kept } = await writing(() => structuredClone(initial));
        const parent = open(plugin, "parent");
        const atFork = Buffer.from(stateOf(parent));
        const child = open(plugin, "child", stateOf(parent));
        const [changing, other] = parentChanges ? ["parent", child] : ["child", parent];
        const own = kept(changing as string);
        for (const [, data] of own.blobs) data.fill(255);
        own.blobs.push(["one more", Uint8Array.of(1)]);
        own.revision++;
        expect(Buffer.from(stateOf(other as PluginInstance)).equals(atFork)).toBe(true);
        const changed = stateOf(parentChanges ? parent : child);
        expect(Buffer.from(changed).equals(atFork)).toBe(false);
      }),
      { numRuns: 200 },
    );
  });

  // §15.57
  test("reads the first of two blobs with one name, and keeps both", async () => {
    const [first, second] = [Uint8Array.of(1), Uint8Array.of(2)];
    const { plugin, kept } = await writing(() => ({
      state: null,
      blobs: [
        ["b", first],
        ["b", second],
      ],
      revision: 1n,
    }));
    const captured = stateOf(open(plugin, "s"));
    open(plugin, "t", captured);
    expect(kept("t").blobs).toEqual([
      ["b", first],
      ["b", first],
    ]);
    expect(decode(captured)).toMatchObject({
      blobs: [
        ["b", first],
        ["b", second],
      ],
    });
  });

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

  test("takes its state along when the plugin comes to keep it in another way, through migrate", async () => {
    const migrate = (state: unknown, from: string) => ({ ...(state as object), from });
    const seen: unknown[] = [];
    const declaring = (version: string) =>
      loadPlugin(
        definePlugin({
          id: "p",
          version,
          migrate,
          state: (): object => ({ made: version }),
          hooks: { beforeTurn: ({ state }) => void seen.push(state) },
        }),
        undefined,
        "test",
      );
    const registering = (version: string) =>
      loadPlugin(
        definePlugin({
          id: "p",
          version,
          migrate,
          register: () => ({
            snapshot: () => ({ written: version }),
            restore: ({ pluginVersion, revision, state }) => void seen.push({ pluginVersion, revision, state }),
          }),
        }),
        undefined,
        "test",
      );
    const declared = stateOf(open(await declaring("1.0.0"), "s"));
    const own = stateOf(open(await registering("1.0.0"), "s"));
    open(await registering("2.0.0"), "s", declared);
    open(await declaring("2.0.0"), "s", own).hook({ kind: "before_turn", nth: 0 }, () => {}, idle);
    expect(seen).toEqual([
      { pluginVersion: "1.0.0", revision: 0n, state: { made: "1.0.0", from: "1.0.0" } },
      { written: "1.0.0", from: "1.0.0" },
    ]);
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
      instance.hook({ kind: "before_turn", nth: 0 }, (context) => Object.assign(context, { input }), idle);
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
      instance.hook({ kind: "before_turn", nth: 0 }, (context) => Object.assign(context, { input }), idle);
    const parent = open(plugin, "parent");
    say(parent, "before");
    const child = open(plugin, "child", stateOf(parent));
    const atFork = Buffer.from(stateOf(parent));
    say(child, "only the child");
    expect(Buffer.from(stateOf(parent)).equals(atFork)).toBe(true);
    expect(Buffer.from(stateOf(child)).equals(atFork)).toBe(false);
  });
});

test("a plugin checks the arguments of its tools itself, in the words the model knows", async () => {
  const inputSchema = { type: "object", properties: { a: { type: "string", pattern: "^x" } } } as const;
  const tools = { t: { description: "A tool", inputSchema, execute: () => "ran" } };
  const instance = open(await loadPlugin(definePlugin({ id: "p", version: "1.0.0", tools }), undefined, "test"), "s");
  const run = (args: unknown) => instance.tool("t", args, { sessionId: "s", turnId: "1", callId: "c" }, idle);
  expect(run({ a: "xy" })).toBe("ran");
  expect(() => run({ a: "y" })).toThrow(
    expect.objectContaining({
      code: "invalid_tool_args",
      message: `The arguments do not fit the tool's schema: a must match pattern "^x".`,
    }),
  );
});
