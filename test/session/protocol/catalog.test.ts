import { describe, expect, test } from "vitest";
import { definePlugin, nativeToolStep } from "../../../src/plugin/index.js";
import { onDemand, tool } from "../../tools/registered.js";
import { inlineSession } from "../inline-session.js";

const TOOLS = [tool("read"), tool("shell"), onDemand("probe", "acme.probe")];

/** Takes the shell away while its state says so; counts how often it is asked. */
function locking() {
  const asked = { times: 0 };
  const plugin = definePlugin({
    id: "locks",
    version: "1.0.0",
    state: () => ({ locked: false }),
    hooks: {
      beforeTurn: ({ input, state }) => {
        if (input !== "look") state.locked = input === "lock";
      },
      toolCatalogContributor: ({ state }) => {
        asked.times++;
        return state.locked ? { remove: ["shell"] } : undefined;
      },
    },
  });
  return { plugin, asked };
}

/** Has state that changes with every turn and nothing to say about tools. */
const counting = definePlugin({
  id: "counts",
  version: "1.0.0",
  state: () => ({ turns: 0 }),
  hooks: { beforeTurn: ({ state }) => void state.turns++ },
});

describe("a session's catalog to which nobody contributes", () => {
  // §15.67 turn §8.73
  test("is the same object, at once, until the tools change", async () => {
    const { resolve, tools } = await inlineSession([], { tools: TOOLS });
    const first = resolve();
    expect(first).toMatchObject({ names: ["read", "shell"] });
    expect(resolve()).toBe(first);
    tools.setMembership(["shell"], false);
    const second = resolve();
    expect(second).toMatchObject({ names: ["read"] });
    expect(resolve()).toBe(second);
    expect(first).toMatchObject({ names: ["read", "shell"] });
  });

  // §15.66 §15.67
  test("is another with another overlay, and the same with the same overlay once more", async () => {
    const { resolve, tools } = await inlineSession([], { tools: TOOLS });
    const without = resolve();
    tools.setOverlay({ includeBase: false, toolIds: ["acme.probe"] });
    const overlaid = resolve();
    expect(overlaid).toMatchObject({ names: ["probe"] });
    tools.setOverlay({ includeBase: false, toolIds: ["acme.probe"] });
    expect(resolve()).toBe(overlaid);
    tools.setOverlay({ includeBase: true, toolIds: [] });
    expect(resolve()).toMatchObject({ names: ["read", "shell"] });
    expect(resolve()).not.toBe(without);
  });

  // §15.67
  test("does not depend on the plugins' state", async () => {
    const { resolve, begin, hooks } = await inlineSession([counting], { tools: TOOLS });
    const first = resolve();
    const before = hooks.fingerprint();
    await begin("hi");
    await hooks.capture();
    expect(hooks.fingerprint()).not.toBe(before);
    expect(resolve()).toBe(first);
  });

  test("has a preamble for each turn's options, and keeps only the newest few", async () => {
    const { resolve } = await inlineSession([], { tools: TOOLS });
    const options = Array.from({ length: 5 }, (_, n) => ({ schemaVersion: 1, n }) as never);
    const made = options.map((each) => resolve(each));
    expect(options.slice(1).map((each, n) => resolve(each) === made[n + 1])).toEqual([true, true, true, true]);
    // Five of them and four places: the first had to go.
    expect(resolve(options[0])).not.toBe(made[0]);
  });

  test("is forgotten when the session says so", async () => {
    const { resolve, catalog } = await inlineSession([], { tools: TOOLS });
    const first = resolve();
    catalog.invalidate();
    expect(resolve()).not.toBe(first);
  });
});

describe("a session's catalog to which a plugin contributes", () => {
  // §15.67
  test("is the same object while no state changed, and the plugin is not asked again", async () => {
    const { plugin, asked } = locking();
    const { resolve } = await inlineSession([plugin], { tools: TOOLS });
    const first = await resolve();
    expect(first.names).toEqual(["read", "shell"]);
    expect(await resolve()).toBe(first);
    expect(asked.times).toBe(1);
  });

  // §15.67
  test("is made anew when any plugin's captured state changed", async () => {
    const { plugin, asked } = locking();
    const { resolve, begin, hooks } = await inlineSession([plugin, counting], { tools: TOOLS });
    const first = await resolve();
    await begin("look");
    await hooks.capture();
    expect(await resolve()).not.toBe(first);
    expect(asked.times).toBe(2);
  });

  // §15.67
  test("always fits the state the plugin has now, whatever it had before and whenever it was captured", async () => {
    const { plugin } = locking();
    const { resolve, begin, hooks } = await inlineSession([plugin], { tools: TOOLS });
    const seen: [string, readonly string[]][] = [];
    for (const input of ["free", "lock", "free", "free", "lock", "lock", "look", "free"]) {
      await begin(input);
      seen.push([input, (await resolve()).names]);
      await hooks.capture();
    }
    expect(seen).toEqual([
      ["free", ["read", "shell"]],
      ["lock", ["read"]],
      ["free", ["read", "shell"]],
      ["free", ["read", "shell"]],
      ["lock", ["read"]],
      ["lock", ["read"]],
      ["look", ["read"]],
      ["free", ["read", "shell"]],
    ]);
  });

  test("is not kept when making it failed: the next time it is tried again", async () => {
    let fails = true;
    const plugin = definePlugin({
      id: "fails",
      version: "1.0.0",
      hooks: {
        toolCatalogContributor: () => {
          if (fails) throw new Error("not now");
          return { remove: ["shell"] };
        },
      },
    });
    const { resolve } = await inlineSession([plugin], { tools: TOOLS });
    await expect(resolve()).rejects.toThrow("not now");
    fails = false;
    expect((await resolve()).names).toEqual(["read"]);
  });

  test("cannot be called by a name that was taken away", async () => {
    const { plugin } = locking();
    const { resolve, begin } = await inlineSession([plugin], { tools: TOOLS });
    await begin("lock");
    const catalog = await resolve();
    expect([catalog.get("shell"), catalog.whyNot("shell"), catalog.get("read")?.spec.name]).toEqual([
      undefined,
      "unavailable",
      "read",
    ]);
  });
});

/** Its preamble tells the last input that was not "look"; its own revision says when that changed. */
const echoing = definePlugin({
  id: "echoes",
  version: "1.0.0",
  register: (registrar) => {
    const state = { said: "", revision: 0 };
    registrar.hook("beforeTurn", ({ input }) => {
      if (input === "look") return;
      state.said = input;
      state.revision++;
    });
    registrar.protocol({
      session: {},
      driver: {
        buildPreamble: ({ tools }) => ({
          toolSpecs: tools,
          executionPrompt: state.said,
          promptContributions: [],
          syncExecutionEnvironment: false,
          interpret: nativeToolStep,
        }),
      },
    });
    return { snapshotRevision: () => state.revision, snapshot: () => state };
  },
});

describe("a session's catalog whose protocol driver is not the standard one", () => {
  test("has a preamble of the driver's state as it is now, and is the same object while no revision changed", async () => {
    const { resolve, begin, hooks } = await inlineSession([], { tools: TOOLS, protocol: echoing });
    const first = resolve();
    await begin("one");
    const second = resolve();
    expect([first, second]).toMatchObject([
      { preamble: { executionPrompt: "" } },
      { preamble: { executionPrompt: "one" } },
    ]);
    await hooks.capture();
    expect(resolve()).toBe(second);
    await begin("look");
    expect(resolve()).toBe(second);
  });

  test("is made anew when another plugin's captured state changed", async () => {
    const { resolve, begin, hooks } = await inlineSession([counting], { tools: TOOLS, protocol: echoing });
    const first = resolve();
    await begin("look");
    await hooks.capture();
    expect(resolve()).not.toBe(first);
  });
});
