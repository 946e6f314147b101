import { spawn } from "node:child_process";
import { once } from "node:events";
import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { createTroupe, type TroupeOptions } from "troupe";
import { describe, expect, test } from "vitest";
import { EMPTY_OBJECT, fixture, plugin, refusalOf, startTroupe, tempFolder } from "../../support/runtime.js";

const tool = { description: "d", inputSchema: EMPTY_OBJECT, execute: () => null };

describe("createTroupe is refused, with a code and a sentence,", () => {
  const cases: [what: string, options: TroupeOptions, code: string, says: RegExp][] = [
    [
      "for a plugin module that does not exist",
      { plugins: [{ module: plugin("nowhere") }] },
      "plugin_module_not_found",
      /Check the URL/,
    ],
    [
      "for a plugin module that does not parse",
      { plugins: [{ module: fixture("broken/plugin-syntax-error.mjs") }] },
      "plugin_module_invalid",
      /importing it failed/,
    ],
    [
      "for a plugin module that throws",
      { plugins: [{ module: plugin("throws-at-load") }] },
      "plugin_module_invalid",
      /no good/,
    ],
    [
      "for a plugin module whose top-level await never ends",
      { plugins: [{ module: plugin("never-loads"), loadMs: 200 }] },
      "plugin_load_timeout",
      /loadMs/,
    ],
    [
      "for an inline plugin's module whose top-level await never ends",
      { plugins: [{ module: plugin("never-loads"), tier: "inline", loadMs: 200 }] },
      "plugin_load_timeout",
      /never-loads.* within 200 ms.*loadMs/,
    ],
    [
      "for a model module whose top-level await never ends",
      { model: fixture("models/never-loads.mjs"), modelLoadMs: 200 },
      "model_load_timeout",
      /never-loads.* within 200 ms.*modelLoadMs/,
    ],
    [
      "for a further model whose module's top-level await never ends",
      { models: { slow: fixture("models/never-loads.mjs") }, modelLoadMs: 200 },
      "model_load_timeout",
      /modelLoadMs/,
    ],
    ["for no time to load a model", { modelLoadMs: 0 }, "invalid_options", /modelLoadMs/],
    [
      "for a plugin module without a default export",
      { plugins: [{ module: plugin("no-default") }] },
      "plugin_module_invalid",
      /default export/,
    ],
    ["for a plugin without an id", { plugins: [{ module: plugin("no-id") }] }, "plugin_invalid", /no usable id/],
    [
      "for two plugins with one id",
      { plugins: [{ module: plugin("counter") }, { module: plugin("counter") }] },
      "duplicate_plugin",
      /test\.counter/,
    ],
    [
      "for two plugins with one id in different tiers",
      { plugins: [{ module: plugin("counter") }, { module: plugin("counter"), tier: "inline" }] },
      "duplicate_plugin",
      /test\.counter/,
    ],
    [
      "for invalid plugin options",
      { plugins: [{ module: plugin("with-options"), options: { max: "ten" } }] },
      "plugin_options_invalid",
      /test\.with-options/,
    ],
    [
      "for invalid options of an inline plugin",
      { plugins: [{ module: plugin("with-options"), tier: "inline", options: {} }] },
      "plugin_options_invalid",
      /test\.with-options/,
    ],
    [
      "for options that do not fit a plugin's JSON Schema",
      { plugins: [{ module: plugin("with-json-schema"), options: { max: "ten" } }] },
      "plugin_options_invalid",
      /max must be integer/,
    ],
    [
      "for plugin options that cannot cross a thread",
      { plugins: [{ module: plugin("with-options"), options: { max: () => 1 } }] },
      "plugin_options_invalid",
      /plain data/,
    ],
    [
      "for an unknown tier",
      { plugins: [{ module: plugin("counter"), tier: "cloud" as never }] },
      "invalid_options",
      /tier/,
    ],
    ["for a plugin entry without a module", { plugins: [{} as never] }, "invalid_options", /module/],
    [
      "for a tool with a broken schema",
      { tools: { bad: { ...tool, inputSchema: { type: "objekt" } } } },
      "invalid_tool_schema",
      /bad/,
    ],
    [
      "for a tool without execute",
      { tools: { bad: { description: "d", inputSchema: EMPTY_OBJECT } as never } },
      "invalid_tool",
      /execute/,
    ],
    ["for a tool with a bad name", { tools: { "not a name": tool } }, "invalid_tool", /name/],
    [
      "for a host tool named like a plugin's",
      { plugins: [{ module: plugin("counter") }], tools: { count: tool } },
      "duplicate_tool",
      /count/,
    ],
    [
      "for a pool tool whose module does not exist",
      { tools: { x: { module: fixture("tools/nowhere.mjs") } } },
      "tool_module_not_found",
      /nowhere/,
    ],
    [
      "for a pool tool module that is no tool",
      { tools: { x: { module: plugin("throws-at-load") } } },
      "tool_module_invalid",
      /./,
    ],
    [
      "for a model module that does not exist",
      { model: fixture("models/nowhere.mjs") },
      "model_module_not_found",
      /nowhere/,
    ],
    ["for a model module that is no model", { model: plugin("counter") }, "model_module_invalid", /./],
    ["for a live model object", { model: { doStream() {} } as never }, "invalid_options", /module/],
    ["for a store that is neither memory nor a path", { store: {} as never }, "invalid_options", /store/],
    ["for a number of workers that is none", { sessionWorkers: 0 }, "invalid_options", /sessionWorkers/],
  ];
  test.each(cases)("%s", async (_what, options, code, says) => {
    const error = await refusalOf(createTroupe({ sessionWorkers: 1, ...options }));
    expect([error.code, error.message]).toEqual([code, expect.stringMatching(says)]);
  });

  test("for a store path that is a file", async () => {
    const path = join(await tempFolder(), "file");
    await writeFile(path, "not a folder");
    expect((await refusalOf(createTroupe({ store: { path } }))).code).toBe("store_path_not_a_directory");
  });

  test("for a store path that cannot be written", async () => {
    expect((await refusalOf(createTroupe({ store: { path: "/proc/troupe" } }))).code).toBe("store_not_writable");
  });

  test("for a store another process holds, and works once that process was killed", async () => {
    const path = await tempFolder();
    const holder = spawn(process.execPath, [fixture("programs/hold-store.mjs").pathname, path], {
      stdio: ["ignore", "pipe", "inherit"],
    });
    await once(holder.stdout, "data");
    const error = await refusalOf(createTroupe({ store: { path } }));
    expect([error.code, error.details.pid]).toEqual(["store_held", holder.pid]);
    holder.kill("SIGKILL");
    await once(holder, "exit");
    const troupe = await startTroupe({ store: { path } });
    expect((await (await troupe.session("held")).info()).turns).toBe(1);
  });

  test("for a store this process holds already", async () => {
    const path = await tempFolder();
    await startTroupe({ store: { path } });
    expect((await refusalOf(createTroupe({ store: { path } }))).code).toBe("store_held");
  });
});

describe("a runtime refuses", () => {
  test.each([
    ["an empty", ""],
    ["an overlong", "x".repeat(257)],
    ["a control-character", "a\u0000b"],
    ["a newline in a", "a\nb"],
    ["a non-string", 42 as never],
  ])("%s session id", async (_what, id) => {
    const troupe = await startTroupe({ sessionWorkers: 1 });
    expect((await refusalOf(troupe.session(id))).code).toBe("invalid_session_id");
    expect((await troupe.stats()).workers[0]?.sessions).toBe(0);
  });

  test.each([[undefined], [null], [42], [{ text: "hi" }], [Buffer.from("hi")]])(
    "a turn input that is %s, without asking for a turn",
    async (input) => {
      const troupe = await startTroupe({ sessionWorkers: 1 });
      const session = await troupe.session("s");
      expect(() => session.turn(input as never)).toThrowError(expect.objectContaining({ code: "invalid_turn_input" }));
      expect((await troupe.stats()).turns.asked).toBe(0);
      expect((await session.turn("a good one")).outcome.type).toBe("finished");
    },
  );

  test("an input past the limit", async () => {
    const troupe = await startTroupe({ sessionWorkers: 1 });
    const session = await troupe.session("s");
    const tooLong = "x".repeat(4 * 1024 * 1024 + 1);
    const { outcome } = await session.turn(tooLong);
    expect(outcome).toMatchObject({ type: "stopped", reason: "invalid_input", code: "invalid_turn_input" });
    expect(await refusalOf(session.enqueue(tooLong))).toMatchObject({ code: "invalid_turn_input" });
  });
});

describe("nothing is left behind", () => {
  test.each(["close", "fails-half-way", "await-using"])(
    "when a program ends with %s: it ends by itself, without warnings",
    async (how) => {
      const program = spawn(
        process.execPath,
        ["--unhandled-rejections=strict", fixture("programs/ends.mjs").pathname, how],
        { stdio: ["ignore", "pipe", "pipe"] },
      );
      let stdout = "";
      let stderr = "";
      program.stdout.on("data", (chunk) => (stdout += chunk));
      program.stderr.on("data", (chunk) => (stderr += chunk));
      const [code] = await once(program, "exit");
      expect({ code, stderr, resources: JSON.parse(stdout) }).toEqual({ code: 0, stderr: "", resources: [] });
    },
  );
});
