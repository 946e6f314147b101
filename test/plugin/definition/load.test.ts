import { describe, expect, it } from "vitest";
import { z } from "zod";
import { definePlugin, HOOK_KINDS, loadPlugin, pluginLoadTimeout } from "../../../src/plugin/index.js";

const SOURCE = "file:///plugins/acme.js";
const base = { id: "acme.budget", version: "1.0.0" };
const load = (exported: unknown, options?: unknown) => loadPlugin(exported, options, SOURCE);
const tool = { description: "Looks.", inputSchema: { type: "object" }, execute: () => 1 };

describe("loadPlugin", () => {
  it("gives a manifest that is data, and the parts to call", async () => {
    const beforeTurn = () => undefined;
    const execute = () => "rain";
    const loaded = await load(
      definePlugin({
        ...base,
        options: z.object({ max: z.number().default(10) }),
        state: () => ({ calls: 0 }),
        hooks: { beforeTurn, afterTurn: () => undefined },
        tools: {
          weather: {
            description: "The weather.",
            inputSchema: z.object({ city: z.string() }),
            timeoutMs: 500,
            execute,
          },
        },
      }),
    );
    expect(loaded.manifest).toEqual({
      id: "acme.budget",
      version: "1.0.0",
      stateful: true,
      migrates: false,
      registers: false,
      extensions: [],
      contributions: {
        hooks: [{ kind: "before_turn" }, { kind: "after_turn" }],
        operations: [],
        triggers: [],
        tools: [
          {
            spec: {
              name: "weather",
              description: "The weather.",
              inputSchema: {
                $schema: "http://json-schema.org/draft-07/schema#",
                type: "object",
                properties: { city: { type: "string" } },
                required: ["city"],
              },
            },
            timeoutMs: 500,
          },
        ],
      },
    });
    expect(structuredClone(loaded.manifest)).toEqual(loaded.manifest);
    expect(loaded.options).toEqual({ max: 10 });
    expect(loaded.contributed.hook("before_turn", 0)).toBe(beforeTurn);
    expect(loaded.contributed.tool("weather")?.execute).toBe(execute);
    expect(loaded.initialState?.({ sessionId: "s", options: loaded.options })).toEqual({ calls: 0 });
  });

  it("is content with an id and a version", async () => {
    const loaded = await load(base);
    expect(loaded.manifest).toEqual({
      ...base,
      stateful: false,
      migrates: false,
      registers: false,
      extensions: [],
      contributions: { hooks: [], tools: [], operations: [], triggers: [] },
    });
    expect(loaded.options).toEqual({});
    expect(loaded.initialState).toBeUndefined();
  });

  it("knows every hook by its name in statistics", async () => {
    const hooks = Object.fromEntries(Object.keys(HOOK_KINDS).map((name) => [name, () => undefined]));
    const { contributions } = (await load({ ...base, hooks })).manifest;
    expect(contributions.hooks.map(({ kind }) => kind)).toEqual([
      "context_transform",
      "before_turn",
      "tool_catalog_contributor",
      "prompt_contributor",
      "assistant_stream",
      "assistant_response",
      "assistant_prose_projector",
      "stream_finished",
      "before_tool_call",
      "after_tool_call",
      "tool_result_projector",
      "checkpoint",
      "after_turn",
      "turn_finalized",
      "turn_persisted",
      "session_restored",
      "session_config_mutator",
      "session_config_changed",
      "context_compactor",
    ]);
  });

  it("leaves out a hook that is switched off", async () => {
    expect((await load({ ...base, hooks: { beforeTurn: undefined } })).manifest.contributions.hooks).toEqual([]);
  });

  it("hands options through when there is no schema for them", async () => {
    expect((await load(base, { any: [1] })).options).toEqual({ any: [1] });
  });

  const needs = "needs a description, an inputSchema and an execute function";
  it.each<[string, unknown, string]>([
    ["nothing", undefined, "its default export is not a plugin. Write `export default definePlugin({ … })`"],
    ["null", null, "its default export is not a plugin. Write `export default definePlugin({ … })`"],
    ["a function", () => base, "its default export is not a plugin. Write `export default definePlugin({ … })`"],
    ["no id", { version: "1.0.0" }, 'it has no usable id. Give it one like "acme.budget"'],
    ["an empty id", { ...base, id: "" }, 'it has no usable id. Give it one like "acme.budget"'],
    ["an id with spaces", { ...base, id: "my plugin" }, 'it has no usable id. Give it one like "acme.budget"'],
    ["an endless id", { ...base, id: "a".repeat(129) }, 'it has no usable id. Give it one like "acme.budget"'],
    ["an id that is a number", { ...base, id: 7 }, 'it has no usable id. Give it one like "acme.budget"'],
    ["no version", { id: "acme.budget" }, 'plugin acme.budget has no version. Give it one like "1.0.0"'],
    ["an empty version", { ...base, version: "" }, 'plugin acme.budget has no version. Give it one like "1.0.0"'],
    [
      "a version that is a number",
      { ...base, version: 1 },
      'plugin acme.budget has no version. Give it one like "1.0.0"',
    ],
    [
      "state that is no function",
      { ...base, state: { calls: 0 } },
      "the state of plugin acme.budget is not a function that makes it",
    ],
    ["hooks that are no object", { ...base, hooks: "beforeTurn" }, "the hooks of plugin acme.budget are not an object"],
    [
      "a hook nobody knows",
      { ...base, hooks: { before_turn: () => {} } },
      'plugin acme.budget has no hook "before_turn". Did you mean "beforeTurn"?',
    ],
    [
      "a hook named like a method of every object",
      { ...base, hooks: { toString: () => {} } },
      'plugin acme.budget has no hook "toString". There are: turnContextTransform, beforeTurn, toolCatalogContributor, promptContributor, assistantStream, assistantResponse, proseProjector, streamFinished, beforeToolCall, afterToolCall, toolResultProjector, checkpoint, afterTurn, turnFinalized, turnPersisted, sessionRestored, sessionConfigMutator, sessionConfigChanged, contextCompactor',
    ],
    [
      "a hook that is no function",
      { ...base, hooks: { beforeTurn: true } },
      "hook beforeTurn of plugin acme.budget is not a function",
    ],
    ["tools that are no object", { ...base, tools: 1 }, "the tools of plugin acme.budget are not an object"],
    ["a tool that is null", { ...base, tools: { look: null } }, `tool look of plugin acme.budget ${needs}`],
    [
      "a tool without description",
      { ...base, tools: { look: { ...tool, description: undefined } } },
      `tool look of plugin acme.budget ${needs}`,
    ],
    [
      "a tool without schema",
      { ...base, tools: { look: { ...tool, inputSchema: undefined } } },
      `tool look of plugin acme.budget ${needs}`,
    ],
    [
      "a tool without body",
      { ...base, tools: { look: { ...tool, execute: "run" } } },
      `tool look of plugin acme.budget ${needs}`,
    ],
  ])("refuses a plugin with %s", async (_, exported, why) => {
    await expect(load(exported)).rejects.toMatchObject({
      name: "TroupeError",
      code: "plugin_invalid",
      message: `${SOURCE} cannot be used as a plugin: ${why}${why.endsWith("?") ? "" : "."}`,
      details: { module: SOURCE },
    });
  });

  it("refuses a tool whose name no provider takes", async () => {
    await expect(load({ ...base, tools: { "look around": tool } })).rejects.toMatchObject({
      code: "invalid_tool",
      message: 'Tool "look around": its name must be 1 to 64 letters, digits, "_" or "-".',
    });
  });

  it("refuses a tool whose schema is none", async () => {
    await expect(load({ ...base, tools: { look: { ...tool, inputSchema: "string" } } })).rejects.toMatchObject({
      code: "invalid_tool_schema",
      message: "The schema of tool look of plugin acme.budget cannot be used: it must be an object, not a string.",
    });
  });
});

describe("the options of a plugin", () => {
  const plugin = definePlugin({
    ...base,
    options: z.object({ max: z.number({ error: "must be a number" }).int(), tag: z.string().trim().default("none") }),
  });

  it("are what the schema makes of them", async () => {
    expect((await load(plugin, { max: 3, tag: " x " })).options).toEqual({ max: 3, tag: "x" });
  });

  it("that do not fit are refused with the name of the plugin and every problem", async () => {
    await expect(load(plugin, { max: "many", tag: 1 })).rejects.toMatchObject({
      code: "plugin_options_invalid",
      message:
        "The options of plugin acme.budget are not valid: max: must be a number; tag: Invalid input: expected string, received number.",
      details: {
        pluginId: "acme.budget",
        issues: ["max: must be a number", "tag: Invalid input: expected string, received number"],
      },
    });
  });

  it("that are missing are checked as none", async () => {
    await expect(load(plugin)).rejects.toMatchObject({
      code: "plugin_options_invalid",
      message: "The options of plugin acme.budget are not valid: max: must be a number.",
    });
  });

  it("may be checked by a schema that takes its time", async () => {
    const slow = definePlugin({
      ...base,
      options: z.object({ key: z.string().refine(async (key) => key === "right", "wrong key") }),
    });
    expect((await load(slow, { key: "right" })).options).toEqual({ key: "right" });
    await expect(load(slow, { key: "left" })).rejects.toMatchObject({
      message: "The options of plugin acme.budget are not valid: key: wrong key.",
    });
  });
});

describe("pluginLoadTimeout", () => {
  it("says which module took too long, how long that is, and what to do", () => {
    expect(pluginLoadTimeout(SOURCE, 250)).toMatchObject({
      code: "plugin_load_timeout",
      retryable: true,
      message: expect.stringMatching(
        /^The plugin module file:\/\/\/plugins\/acme\.js was not loaded within 250 ms: .*loadMs\.$/,
      ),
      details: { module: SOURCE, loadMs: 250 },
    });
  });
});
