import { createTroupe, scriptedModel, type Troupe, type TroupeOptions } from "troupe";
import { afterAll, beforeAll, expect, test } from "vitest";
import { z } from "zod";
import { fixture, refusalOf } from "../../support/runtime.js";

/**
 * What a program got wrong, as it got it wrong: JavaScript, or TypeScript that was told to be quiet. A number is the line
 * of reference/first-use.md where somebody saw it.
 */
type Mistake = readonly [mistake: string, act: () => unknown, code: string, message: unknown];

const wrong = (options: object) => () => createTroupe(options as TroupeOptions);
const tool = { description: "The weather in a city.", inputSchema: { type: "object" }, execute: () => null } as const;

/** A plugin module that is nothing but this export. */
const exporting = (code: string) => `data:text/javascript,${encodeURIComponent(`export default ${code};`)}`;
const inline = (code: string) => wrong({ plugins: [{ module: exporting(code), tier: "inline" }], sessionWorkers: 1 });
const NEVER_LOADS = fixture("plugins/never-loads.mjs").href;
const broken = (name: string) => fixture(`broken/${name}`).href;

/** Refused before any thread starts. */
const OPTIONS: readonly Mistake[] = [
  ["no object of options", wrong("./data" as never), "invalid_options", "createTroupe takes an options object."],
  [
    "24: modle for model",
    wrong({ modle: "./model.js" }),
    "invalid_options",
    'createTroupe has no option "modle". Did you mean "model"?',
  ],
  [
    "24: an option of another library",
    wrong({ apiKey: "x" }),
    "invalid_options",
    expect.stringMatching(/^createTroupe has no option "apiKey"\. There are: model, models, .*\.$/),
  ],
  [
    "a live model for its module",
    wrong({ model: { specificationVersion: "v3", doStream() {} } }),
    "invalid_options",
    "model must be the URL of a module or a script; a live model object cannot cross to the session workers.",
  ],
  [
    "the name of a package for a model",
    wrong({ model: "gpt-5" }),
    "invalid_options",
    'model needs a module, named by URL: new URL("./x.js", import.meta.url), or import.meta.resolve("package") for a package.',
  ],
  [
    "a text for a number",
    wrong({ sessionWorkers: "2" }),
    "invalid_options",
    'sessionWorkers must be a whole number from 1, not "2".',
  ],
  [
    "none of something that is needed",
    wrong({ mailboxLimit: 0 }),
    "invalid_options",
    "mailboxLimit must be a whole number from 1, not 0.",
  ],
  [
    "a text for the store",
    wrong({ store: "./data" }),
    "invalid_options",
    'store must be { memory: true } or { path: "./folder" }.',
  ],
  [
    "pth for path",
    wrong({ store: { pth: "./data" } }),
    "invalid_options",
    'store has no option "pth". Did you mean "path"?',
  ],
  [
    "the plugin itself for its module",
    wrong({ plugins: [{ id: "acme.budget", version: "1.0.0", hooks: {} }] }),
    "invalid_options",
    "plugins[0] is a plugin itself; name its module instead, because another thread imports it: { module }.",
  ],
  [
    "one plugin for a list",
    wrong({ plugins: { module: "./plugin.js" } }),
    "invalid_options",
    "plugins must be a list of { module, options?, tier? }.",
  ],
  [
    "a plugin by its path alone",
    wrong({ plugins: ["./plugin.js"] }),
    "invalid_options",
    'plugins[0] must be { module: new URL("./plugin.js", import.meta.url), options? }, not a string.',
  ],
  [
    "a plugin by the name of its package",
    wrong({ plugins: [{ module: "acme-budget" }] }),
    "invalid_options",
    'plugins[0] needs a module, named by URL: new URL("./x.js", import.meta.url), or import.meta.resolve("package") for a package.',
  ],
  [
    "permission for permissions",
    wrong({ plugins: [{ module: "./plugin.js", permission: {} }] }),
    "invalid_options",
    'plugins[0] has no option "permission". Did you mean "permissions"?',
  ],
  [
    "24: fs for read among the permissions",
    wrong({ plugins: [{ module: "./plugin.js", permissions: { fs: ["./data"] } }] }),
    "invalid_options",
    'plugins[0].permissions has no option "fs". There are: read, write, childProcess, worker, addons, processes, env, network.',
  ],
  [
    "a hook of another spelling in onFailure",
    wrong({ plugins: [{ module: "./plugin.js", onFailure: { before_turn: "skip" } }] }),
    "invalid_options",
    'plugins[0].onFailure has no hook "before_turn". Did you mean "beforeTurn"?',
  ],
  [
    "deny where nothing can be denied",
    wrong({ plugins: [{ module: "./plugin.js", onFailure: "deny" }] }),
    "invalid_options",
    'plugins[0].onFailure cannot be "deny": only a tool call can be denied, so it is for beforeToolCall and afterToolCall; use "fail_turn" or "skip" for other hooks.',
  ],
  [
    "a class instance in a plugin's options",
    wrong({ plugins: [{ module: "./plugin.js", options: { now: () => 1 } }] }),
    "plugin_options_invalid",
    "The options of plugins[0] are not valid: they must be plain data, because they cross to another thread.",
  ],
  [
    "a list of tools",
    wrong({ tools: [tool] }),
    "invalid_options",
    "tools must be an object of tools by name, not a list.",
  ],
  [
    "a tool with a space in its name",
    wrong({ tools: { "the weather": tool } }),
    "invalid_tool",
    'Tool "the weather": its name must be 1 to 64 letters, digits, "_" or "-".',
  ],
  [
    "a tool without a description",
    wrong({ tools: { weather: { ...tool, description: "" } } }),
    "invalid_tool",
    "Tool weather: description must say in words what the tool does; the model chooses by it.",
  ],
  [
    "run for execute in a tool",
    wrong({ tools: { weather: { ...tool, execute: undefined, run: () => null } } }),
    "invalid_tool",
    'Tool weather: a tool has no field "run". Did you mean "execute"?',
  ],
  [
    "parameters for inputSchema in a tool",
    wrong({ tools: { weather: { ...tool, parameters: {} } } }),
    "invalid_tool",
    'Tool weather: a tool has no field "parameters". Did you mean "inputSchema"?',
  ],
  [
    "24: a raw shape for a schema",
    wrong({ tools: { weather: { ...tool, inputSchema: { city: z.string() } } } }),
    "invalid_tool_schema",
    "The schema of tool weather cannot be used: it is an object of schemas (city, …) and no schema. Wrap it: z.object({ city: … }).",
  ],
  [
    "types in words for a schema",
    wrong({ tools: { weather: { ...tool, inputSchema: { city: "string" } } } }),
    "invalid_tool_schema",
    'The schema of tool weather cannot be used: it has no keyword of JSON Schema, only city. Write { type: "object", properties: { city: { type: "string" } }, required: ["city"] }.',
  ],
  [
    "time-out for timeoutMs of a pool tool",
    wrong({ tools: { weather: { module: "./tool.js", timeout: 5 } } }),
    "invalid_options",
    'tool weather has no option "timeout". Did you mean "timeoutMs"?',
  ],
  [
    "maxTokens for maxOutputTokens of the AI SDK",
    wrong({ modelOptions: { maxTokens: 100 } }),
    "invalid_options",
    'modelOptions has no option "maxTokens". Did you mean "maxOutputTokens"? What only a provider knows goes into providerOptions.',
  ],
  [
    "maxRetries of the AI SDK for a retry policy's maxAttempts",
    wrong({ modelRetry: { maxRetries: 2 } }),
    "invalid_options",
    'modelRetry has no option "maxRetries". Did you mean "maxAttempts"?',
  ],
  [
    "a tool's name for an agent's tools",
    wrong({ agents: { "support@1": { tool: "weather" } } }),
    "invalid_agent",
    'The agent cannot be used: support@1 has no setting "tool". Did you mean "tools"?',
  ],
  [
    "an agent's name with a space",
    wrong({ agents: { "the support": {} } }),
    "invalid_agent",
    'The agent cannot be used: "the support" is no name: letters, digits, dots, dashes and slashes, then @ and a version.',
  ],
  [
    "true for the cache policy",
    wrong({ cache: true }),
    "invalid_cache_policy",
    'The cache policy cannot be used: it is "auto", "off" or a list of points.',
  ],
  [
    "tokens for maxTokens in a budget",
    wrong({ budget: { tokens: 1000 } }),
    "invalid_budget",
    'The budget cannot be used: budget has no option "tokens". Did you mean "maxTokens"?',
  ],
];

/** Refused by the thread that imports the module. */
const MODULES: readonly Mistake[] = [
  [
    "a plugin's module that is not there",
    wrong({ plugins: [{ module: broken("nowhere.mjs") }] }),
    "plugin_module_not_found",
    `There is no plugin module at ${broken("nowhere.mjs")}. Check the URL; a build or a bundler may have put the file elsewhere.`,
  ],
  [
    "23: a plugin's module that does not parse",
    wrong({ plugins: [{ module: broken("plugin-syntax-error.mjs") }] }),
    "plugin_module_invalid",
    `The plugin module ${broken("plugin-syntax-error.mjs")} cannot be used: importing it failed at ${broken("plugin-syntax-error.mjs")}:2: Unexpected end of input.`,
  ],
  [
    "a top-level await that never ends",
    wrong({ plugins: [{ module: NEVER_LOADS, loadMs: 50 }] }),
    "plugin_load_timeout",
    `The plugin module ${NEVER_LOADS} was not loaded within 50 ms: it, or a module it imports, is still in a top-level await or computing. Move what it waits for into a hook or the plugin's register, or give it more time with loadMs.`,
  ],
  [
    "24: hook for hooks in a plugin",
    inline('{ id: "acme.budget", version: "1.0.0", hook: {} }'),
    "plugin_invalid",
    `${exporting('{ id: "acme.budget", version: "1.0.0", hook: {} }')} cannot be used as a plugin: plugin acme.budget has no field "hook". Did you mean "hooks"?`,
  ],
  [
    "a hook that there is not",
    inline('{ id: "acme.budget", version: "1.0.0", hooks: { beforeToolCalls: () => {} } }'),
    "plugin_invalid",
    `${exporting('{ id: "acme.budget", version: "1.0.0", hooks: { beforeToolCalls: () => {} } }')} cannot be used as a plugin: plugin acme.budget has no hook "beforeToolCalls". Did you mean "beforeToolCall"?`,
  ],
  [
    "a plugin without a version",
    inline('{ id: "acme.budget" }'),
    "plugin_invalid",
    `${exporting('{ id: "acme.budget" }')} cannot be used as a plugin: plugin acme.budget has no version. Give it one like "1.0.0".`,
  ],
  [
    "options that do not fit the plugin's schema",
    wrong({
      plugins: [
        {
          module: exporting(
            '{ id: "acme.budget", version: "1.0.0", options: { type: "object", properties: { max: { type: "number" } } } }',
          ),
          tier: "inline",
          options: { max: "3" },
        },
      ],
    }),
    "plugin_options_invalid",
    "The options of plugin acme.budget are not valid: max must be number.",
  ],
];

/** Told by a runtime that runs. */
let troupe: Troupe;
beforeAll(async () => {
  const denial = `{ kind: "short_circuit_tool", output: { status: "failure", failure: { kind: "permission_denied", code: "no", message: "No." } } }`;
  const answers = `({ deny: ${denial}, object: { allow: true }, text: "stop", half: { kind: "abort_turn" } })`;
  const hooks = `{ beforeTurn: ({ sessionId }) => ${answers}[sessionId] }`;
  troupe = await createTroupe({
    sessionWorkers: 1,
    model: scriptedModel({ turns: [[{ text: "Yes." }]] }),
    models: { small: scriptedModel({ turns: [[{ text: "Yes." }]] }) },
    plugins: [{ module: exporting(`{ id: "acme.budget", version: "1.0.0", hooks: ${hooks} }`), tier: "inline" }],
  });
});
afterAll(() => troupe?.close());

const session = () => troupe.session("s");
const turnOf = (id: string) => async () => (await troupe.session(id)).turn("hello");
const RUNNING: readonly Mistake[] = [
  [
    "an empty id of a session",
    () => troupe.session(""),
    "invalid_session_id",
    "A session id must be 1 to 256 printable characters: it is empty.",
  ],
  [
    "24: an option of a session that there is not",
    () => troupe.session("s", { agnet: "support" } as never),
    "invalid_options",
    'A session has no option "agnet". Did you mean "agent"?',
  ],
  [
    "an option of a fork that there is not",
    async () => (await session()).fork({ node: "t1.0" } as never),
    "invalid_fork",
    'The session cannot be forked: a fork has no option "node". There are: id, at, pluginState, authority, catalog, agent.',
  ],
  [
    "a model's name that there is not",
    async () => (await session()).turn("x", { model: "smal" }),
    "model_unknown",
    "There is no model smal. Did you mean small?",
  ],
  [
    "temprature among a turn's model options",
    async () => (await session()).turn("x", { modelOptions: { temprature: 1 } } as never),
    "invalid_turn_options",
    'The turn\'s options cannot be used: modelOptions has no option "temprature". Did you mean "temperature"? What only a provider knows goes into providerOptions.',
  ],
  [
    "an option of a turn that there is not",
    async () => (await session()).turn("x", { maxStep: 3 } as never),
    "invalid_turn_options",
    'The turn\'s options cannot be used: a turn has no option "maxStep". Did you mean "maxSteps"?',
  ],
  [
    "a message for a turn's input",
    async () => (await session()).turn({ role: "user", content: "x" } as never),
    "invalid_turn_input",
    "The turn's input cannot be used: it is a string or { items }, not object.",
  ],
  [
    "a setting that there is not",
    async () => (await session()).configure({ sytem: "x" } as never),
    "invalid_config",
    'The session\'s configuration cannot be changed: a session has no setting "sytem". There are: instructions, prompt, model, modelOptions, maxSteps, noProgressLimit, maxContextTokens, compaction, window, cache, metadata.',
  ],
  [
    "a query that there is not",
    async () => (await session()).query("notes.list", {}),
    "operation_unknown",
    "There is no query called notes.list. There are none.",
  ],
  [
    "a key that nobody waits under",
    () => troupe.completeTool("k", { value: 1 }),
    "completion_unknown",
    "No tool call waits under this key: it was completed, ended, or never was.",
  ],
  [
    "a cursor of nowhere",
    async () => (await session()).observe({ cursor: "7" })[Symbol.asyncIterator]().next(),
    "cursor_invalid",
    'This is no cursor of session s. Give back the cursor of one of its events, unchanged, or begin with "turn" or "now".',
  ],
  [
    "23: deny in beforeTurn",
    turnOf("deny"),
    "plugin_prepare_turn",
    "A beforeTurn hook failed: Plugin acme.budget: beforeTurn cannot return deny, which is for beforeToolCall and afterToolCall; it can return abortTurn, enqueueMessages, nextModelCall, createSession, emitEvents, emitTrace.",
  ],
  [
    "23: an object that is no directive",
    turnOf("object"),
    "plugin_prepare_turn",
    "A beforeTurn hook failed: Plugin acme.budget: beforeTurn returned an object with allow, which is no directive. Return what abortTurn, enqueueMessages, nextModelCall, createSession, emitEvents, emitTrace give, a list of these, or nothing.",
  ],
  [
    "a text for a directive",
    turnOf("text"),
    "plugin_prepare_turn",
    "A beforeTurn hook failed: Plugin acme.budget: beforeTurn returned a string, which is no directive. Return what abortTurn, enqueueMessages, nextModelCall, createSession, emitEvents, emitTrace give, a list of these, or nothing.",
  ],
  [
    "an abort without a code",
    turnOf("half"),
    "plugin_prepare_turn",
    "A beforeTurn hook failed: Plugin acme.budget: beforeTurn returned abortTurn without what it needs: a code and a message.",
  ],
];

test("there are forty typical mistakes and more", () => {
  expect([...OPTIONS, ...MODULES, ...RUNNING].length).toBeGreaterThanOrEqual(40);
});

test.each([...OPTIONS, ...MODULES, ...RUNNING])(
  "the mistake is told in words that say what to do: %s",
  async (_, act, code, message) => {
    expect(await refusalOf(Promise.resolve().then(act))).toMatchObject({ code, message });
  },
);
