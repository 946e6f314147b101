import { type FieldsOf, pluginOptionsInvalid, TroupeError, unknownField } from "../../kernel/index.js";
import type { Extension, SharedDefinition } from "../host/index.js";
import {
  type Contributions,
  type Job,
  type JobSpec,
  type LoadedJob,
  NO_CONTRIBUTIONS,
  type Protocol,
} from "../kinds/index.js";
import {
  isStandardSchema,
  jsonSchemaOf,
  type Parsed,
  parseEagerly,
  type Schema,
  schemaIssues,
} from "../schema/index.js";
import { ContributionSet, pluginInvalid } from "./contributions.js";
import type { PluginDefinition, Register } from "./define.js";

/** What the rest of the runtime knows of a plugin: enough to call only what exists. */
export interface PluginManifest {
  readonly id: string;
  readonly version: string;
  /** It may keep something for a session. */
  readonly stateful: boolean;
  /** It can read state of other major versions. */
  readonly migrates: boolean;
  /** It registers: what it contributes is asked of it for every session. */
  readonly registers: boolean;
  /** What it contributes to every session; empty for one that registers. */
  readonly contributions: Contributions;
  readonly extensions: readonly Extension[];
  /** Fields of its session options that are never stored. */
  readonly secretOptions?: readonly string[];
  /** It has state that sessions share. */
  readonly shared?: true;
  /** Work of it that goes on beside turns. */
  readonly jobs?: readonly JobSpec[];
}

/** A plugin that was checked and given its options; makes one instance per session. */
export interface LoadedPlugin {
  readonly manifest: PluginManifest;
  readonly options: unknown;
  readonly contributed: ContributionSet;
  readonly protocol: ((init: { sessionId: string; options: unknown }) => Protocol) | undefined;
  readonly register: Register<unknown, Schema> | undefined;
  readonly migrate: ((state: unknown, fromVersion: string) => unknown) | undefined;
  readonly initialState: ((init: { sessionId: string; options: unknown }) => unknown) | undefined;
  readonly shared: SharedDefinition<unknown, Schema> | undefined;
  readonly jobs: ReadonlyMap<string, LoadedJob>;
}

const ID = /^[A-Za-z0-9][A-Za-z0-9._\-/@]{0,127}$/;

const PLUGIN_FIELDS: FieldsOf<PluginDefinition<unknown, Schema>> = {
  id: true,
  version: true,
  options: true,
  state: true,
  shared: true,
  migrate: true,
  secretOptions: true,
  hooks: true,
  tools: true,
  queries: true,
  commands: true,
  tasks: true,
  actions: true,
  jobs: true,
  triggers: true,
  extensions: true,
  protocol: true,
  register: true,
};

/** Checks a module's default export and the host's options for it. `source` names the module in errors. */
export async function loadPlugin(exported: unknown, options: unknown, source: string): Promise<LoadedPlugin> {
  if (typeof exported !== "object" || exported === null) {
    throw pluginInvalid(source, "its default export is not a plugin. Write `export default definePlugin({ … })`");
  }
  const definition = exported as Record<string, unknown>;
  const { id, version } = definition;
  if (typeof id !== "string" || !ID.test(id))
    throw pluginInvalid(source, 'it has no usable id. Give it one like "acme.budget"');
  if (typeof version !== "string" || version === "")
    throw pluginInvalid(source, `plugin ${id} has no version. Give it one like "1.0.0"`);
  const unknown = unknownField(definition, PLUGIN_FIELDS, `plugin ${id}`);
  if (unknown !== undefined) throw pluginInvalid(source, unknown);
  const { state, migrate, register } = definition;
  for (const [name, value] of Object.entries({ state, migrate, register })) {
    if (value === undefined || typeof value === "function") continue;
    const whose = `the ${name} of plugin ${id} is not a function`;
    throw pluginInvalid(source, name === "state" ? `${whose} that makes it` : whose);
  }
  const secretOptions = definition.secretOptions ?? [];
  if (!Array.isArray(secretOptions) || secretOptions.some((name) => typeof name !== "string"))
    throw pluginInvalid(source, `the secretOptions of plugin ${id} are not a list of names`);
  const shared = sharedOf(definition.shared, id, source);
  const contributed = declared(definition, id, source);
  const jobs = new Map(
    fieldsOf(definition, "jobs", id, source).map(([name, job]) => [name, jobOf(name, job, id, source)]),
  );
  if (jobs.size > 0 && definition.protocol !== undefined)
    throw pluginInvalid(source, `plugin ${id} has jobs and a protocol. Put the jobs into a plugin of their own`);
  const checkedOptions = await optionsOf(definition.options, options, id);
  return {
    manifest: {
      id,
      version,
      stateful: state !== undefined || register !== undefined,
      migrates: migrate !== undefined,
      registers: register !== undefined,
      contributions: register === undefined ? contributed.specs() : NO_CONTRIBUTIONS,
      extensions: extensionsOf(definition.extensions, checkedOptions, id, source),
      ...(secretOptions.length > 0 && { secretOptions }),
      ...(shared && { shared: true as const }),
      ...(jobs.size > 0 && { jobs: [...jobs.values()].map(({ spec }) => spec) }),
    },
    options: checkedOptions,
    contributed,
    protocol: protocolOf(definition.protocol, id, source),
    register: register as LoadedPlugin["register"],
    migrate: migrate as LoadedPlugin["migrate"],
    initialState: state as LoadedPlugin["initialState"],
    shared,
    jobs,
  };
}

/** The error of a plugin whose module was not imported and checked in time. */
export function pluginLoadTimeout(module: string, ms: number): TroupeError {
  return new TroupeError(
    "plugin_load_timeout",
    `The plugin module ${module} was not loaded within ${ms} ms: it, or a module it imports, is still in a top-level await or computing. Move what it waits for into a hook or the plugin's register, or give it more time with loadMs.`,
    { retryable: true, details: { module, loadMs: ms } },
  );
}

/** What is written down in the definition itself. */
function declared(definition: Record<string, unknown>, id: string, source: string): ContributionSet {
  const set = new ContributionSet(id, source);
  for (const [name, hook] of fieldsOf(definition, "hooks", id, source)) set.addHook(name, hook);
  for (const [name, tool] of fieldsOf(definition, "tools", id, source)) set.addTool(name, tool);
  for (const [field, kind] of [
    ["queries", "query"],
    ["commands", "command"],
    ["tasks", "task"],
    ["actions", "action"],
  ] as const) {
    for (const [name, operation] of fieldsOf(definition, field, id, source)) set.addOperation(kind, name, operation);
  }
  const { triggers = [] } = definition;
  if (!Array.isArray(triggers)) throw pluginInvalid(source, `the triggers of plugin ${id} are not a list`);
  for (const trigger of triggers) set.addTrigger(trigger);
  return set;
}

function fieldsOf(
  definition: Record<string, unknown>,
  field: string,
  id: string,
  source: string,
): readonly [string, unknown][] {
  const given = definition[field];
  if (given === undefined) return [];
  if (typeof given !== "object" || given === null)
    throw pluginInvalid(source, `the ${field} of plugin ${id} are not an object`);
  return Object.entries(given).filter(([, value]) => value !== undefined);
}

const JOB_FIELDS: FieldsOf<Job> = { input: true, pool: true, run: true };

function jobOf(name: string, given: unknown, id: string, source: string): LoadedJob {
  const { input, pool, run } = Object(given) as Partial<Job>;
  const what = `job ${name} of plugin ${id}`;
  const unknown = unknownField(Object(given), JOB_FIELDS, what);
  if (unknown !== undefined) throw pluginInvalid(source, unknown);
  if (input === undefined || typeof run !== "function")
    throw pluginInvalid(source, `${what} needs an input schema and a run function`);
  if (pool !== undefined && typeof pool !== "boolean")
    throw pluginInvalid(source, `the pool of ${what} is true or false`);
  if (!isStandardSchema(input)) jsonSchemaOf(input, what);
  // Called as the method it is written as.
  const job = given as Job;
  const spec = { name, ...(pool === true && { pool }) };
  return { spec, input, run: (parsed, context) => job.run(parsed as never, context) };
}

const SHARED_FIELDS: FieldsOf<SharedDefinition<unknown>> = { key: true, state: true, schema: true, migrate: true };

function sharedOf(given: unknown, id: string, source: string): LoadedPlugin["shared"] {
  if (given === undefined) return undefined;
  const refuse = (why: string) => pluginInvalid(source, `the shared state of plugin ${id} ${why}`);
  if (typeof given !== "object" || given === null) throw refuse("is not an object of key and state");
  const unknown = unknownField(given, SHARED_FIELDS, `the shared state of plugin ${id}`);
  if (unknown !== undefined) throw pluginInvalid(source, unknown);
  const { key, state, schema, migrate } = given as Record<string, unknown>;
  if (typeof key !== "function") throw refuse("has no function key that says which state a session has");
  if (typeof state !== "function") throw refuse("has no function state that makes it");
  if (migrate !== undefined && typeof migrate !== "function") throw refuse("has a migrate that is not a function");
  if (schema !== undefined && (typeof schema !== "object" || schema === null) && !isStandardSchema(schema))
    throw refuse("has a schema that is neither a Standard Schema nor a JSON Schema");
  return given as LoadedPlugin["shared"];
}

function extensionsOf(given: unknown, options: unknown, id: string, source: string): readonly Extension[] {
  const extensions: unknown = typeof given === "function" ? given(options) : (given ?? []);
  const usable =
    Array.isArray(extensions) &&
    extensions.every((entry) => typeof entry?.extensionId === "string" && entry.payload !== undefined);
  if (!usable) throw pluginInvalid(source, `the extensions of plugin ${id} are not a list of { extensionId, payload }`);
  return extensions as readonly Extension[];
}

function protocolOf(given: unknown, id: string, source: string): LoadedPlugin["protocol"] {
  if (given === undefined) return undefined;
  if (typeof given === "function") return given as LoadedPlugin["protocol"];
  if (typeof given !== "object" || given === null)
    throw pluginInvalid(source, `the protocol of plugin ${id} is neither an object nor a function`);
  return () => given as Protocol;
}

async function optionsOf(schema: unknown, options: unknown, id: string): Promise<unknown> {
  if (schema === undefined) return options ?? {};
  const parsed = await parseAny(schema as Schema, options ?? {}, `the options of plugin ${id}`);
  if (parsed.ok) return parsed.value;
  throw pluginOptionsInvalid(`plugin ${id}`, parsed.issues.join("; "), {
    details: { pluginId: id, issues: parsed.issues },
  });
}

/** A value as a schema of either sort reads it; at once, unless the schema waits for something. */
export function parseAny(schema: Schema, value: unknown, what: string): Parsed | Promise<Parsed> {
  if (isStandardSchema(schema)) return parseEagerly(schema, value);
  const issues = schemaIssues(schema, value, what);
  return issues.length === 0 ? { ok: true, value } : { ok: false, issues: [...issues] };
}
