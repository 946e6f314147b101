import type { CodeTable } from "./entry.js";

/** `createTroupe` refuses what it was given. */
export const STARTING = {
  invalid_options: {
    cause:
      "An option is unknown, has the wrong type or is out of its range. The message names it, and a name that is near.",
    cure: "Correct the option that the message names.",
  },
  duplicate_plugin: {
    cause: "Two plugins have the same id.",
    cure: "Give one of them another id, or use `PluginStack.replace` to put one in the other's place.",
  },
  plugin_options_invalid: {
    cause: "The `options` of a plugin do not fit the `options` schema it declares, or are not plain data.",
    cure: "Correct the fields that the message lists. Options are plain data, because they cross to another thread.",
  },
  plugin_module_not_found: {
    cause: "There is no file at the URL of a plugin's `module`.",
    cure: 'Check the URL: `new URL("./plugin.js", import.meta.url)` is beside the file that says so. A bundler moves files.',
  },
  plugin_module_invalid: {
    cause:
      "The module of a plugin could not be imported, or has no default export. A syntax error has its file and line.",
    cure: "Mend the module; `node <file>` shows the same error. Export the plugin as default.",
  },
  plugin_load_timeout: {
    retryable: true,
    cause: "A plugin's module was still in a top-level await, or computing, when its `loadMs` were over.",
    cure: "Move what it waits for into `register` or a hook, or raise `loadMs` of its entry.",
  },
  plugin_invalid: {
    cause:
      "The default export of a plugin's module is no plugin, or one of its fields is unknown or has the wrong type.",
    cure: "Export what `definePlugin` returns, and correct the field that the message names.",
  },
  plugin_register_failed: {
    cause: "A plugin's `register` threw.",
    cure: "Mend `register`; the error it threw is the `cause`.",
  },
  duplicate_operation: {
    cause: "Two operations have the same name.",
    cure: "Rename one of them.",
  },
  duplicate_singleton: {
    cause: "Two plugins, or one plugin twice, contribute something of which there can be one, such as a protocol.",
    cure: "Keep one of them.",
  },
  duplicate_trigger: {
    cause: "Two plugins declare a trigger of the same source.",
    cure: "Rename one of them.",
  },
  invalid_tool: {
    cause: "A tool has no usable name, description, `execute`, or one of its settings is wrong.",
    cure: "Correct the field that the message names.",
  },
  invalid_tool_schema: {
    cause: "A schema is neither JSON Schema nor a Standard Schema, for example a raw shape `{ city: z.string() }`.",
    cure: "Wrap a shape: `z.object({ city: z.string() })`. JSON Schema needs `type`, `properties` and the like.",
  },
  tool_options_invalid: {
    cause: "The `options` of a pool tool do not fit the `options` schema it has, or are not plain data.",
    cure: "Correct the fields that the message lists.",
  },
  duplicate_tool: {
    cause: "Two tools have the same name or id.",
    cure: "Rename one of them; the message says whose they are.",
  },
  model_module_not_found: {
    cause: "There is no file at the URL of a model's module.",
    cure: "Check the URL.",
  },
  model_module_invalid: {
    cause: "A model's module could not be imported, or what it exports is no model.",
    cure: "Export a model, or a function that returns one, as default. A syntax error has its file and line.",
  },
  invalid_agent: {
    cause:
      "An agent has a name, version or setting that cannot be used, or names a tool, plugin or model that is not there.",
    cure: "Correct what the message names.",
  },
  secrets_failed: {
    retryable: true,
    cause: "The host's `secrets` function threw, or returned something else than an object of texts.",
    cure: "Mend the function; the next turn asks it again.",
  },
  model_load_timeout: {
    retryable: true,
    cause:
      "A model's module was still in a top-level await, or its function had not returned, when `modelLoadMs` were over.",
    cure: "Move what it waits for into the model's calls, or raise `modelLoadMs`.",
  },
  invalid_script: {
    cause: "The script of a scripted model is wrong. The message has the path of the field.",
    cure: "Correct that field.",
  },
  tool_module_not_found: {
    cause: "There is no file at the URL of a pool tool's module.",
    cure: "Check the URL.",
  },
  tool_module_invalid: {
    cause: "A pool tool's module could not be imported, or its default export is no tool.",
    cure: "Export what `defineTool` returns as default. A syntax error has its file and line.",
  },
  tool_load_timeout: {
    retryable: true,
    cause: "A pool tool's module was still in a top-level await, or computing, when its `loadMs` were over.",
    cure: "Move what it waits for into the tool's `execute`, or raise `loadMs` of its entry.",
  },
  protocol_missing: {
    cause: "A session names a protocol, or a stored one needs a piece of it, that no plugin of this runtime has.",
    cure: "Give the runtime the plugin that contributes the protocol.",
  },
  isolation_unenforceable: {
    cause: "A plugin or tool is to be confined, and this release of Node.js does not enforce it.",
    cure: 'Use a release that does (docs/isolation.md), ask for less in `permissions`, or trust it: `isolation: "trusted"`.',
  },
  installation_broken: {
    cause: "A file of Troupe that its threads start from is not there, mostly because a bundler left it out.",
    cure: "Leave Troupe out of the bundle (docs/bundling.md), or install it again.",
  },
  worker_failed: {
    cause: "A session worker could not be started.",
    cure: "Read the rest of the message, which says why; the first error is the `cause`.",
  },
  start_failed: {
    cause: "Something threw while the runtime started that is no error of Troupe.",
    cure: "See the `cause`.",
  },
  closed: {
    cause: "The runtime was closed, or is closing.",
    cure: "Create another one. Turns under way are kept, and go on when their session is opened again.",
  },
} satisfies CodeTable;
