import type { StandardSchemaV1 } from "@standard-schema/spec";
import {
  isRecord,
  type Json,
  type JsonObject,
  messageOf,
  pluginOptionsInvalid,
  TroupeError,
} from "../../kernel/index.js";

/** What arguments and options are described with: any Standard Schema (zod, valibot, arktype), or plain JSON Schema. */
export type Schema = StandardSchemaV1 | JsonObject;

/**
 * What a value is after it passed the schema. JSON Schema carries no TypeScript type, so only "it is an object" is known.
 *
 * @example
 * type City = InferSchema<typeof citySchema>; // citySchema = z.object({ name: z.string() }) → { name: string }
 */
export type InferSchema<S> = S extends StandardSchemaV1
  ? StandardSchemaV1.InferOutput<S>
  : S extends { readonly type: "object" }
    ? JsonObject
    : Json;

/**
 * What a caller may pass: as {@link InferSchema}, but before defaults and transformations.
 *
 * @example
 * type Args = SchemaInput<typeof search>; // search = z.object({ limit: z.number().default(3) }) → { limit?: number }
 */
export type SchemaInput<S> = S extends StandardSchemaV1 ? StandardSchemaV1.InferInput<S> : InferSchema<S>;

/** A parsed value, or why it does not fit, one line per problem. */
export type Parsed<T = unknown> =
  | { readonly ok: true; readonly value: T }
  | { readonly ok: false; readonly issues: readonly string[] };

/**
 * Is this a Standard Schema? Some libraries' schemas are functions (arktype), so both are accepted.
 *
 * @example
 * isStandardSchema(z.string()); // true
 * isStandardSchema({ type: "string" }); // false
 */
export function isStandardSchema(candidate: unknown): candidate is StandardSchemaV1 {
  if (candidate === null || (typeof candidate !== "object" && typeof candidate !== "function")) return false;
  const standard = (candidate as Partial<StandardSchemaV1>)["~standard"];
  return typeof standard === "object" && standard !== null && typeof standard.validate === "function";
}

/**
 * The JSON Schema of what a schema accepts: what the model is shown and what crosses threads. `what` names the owner in
 * the `invalid_tool_schema` error.
 *
 * @example
 * jsonSchemaOf(z.object({ city: z.string() }), "tool weather");
 * // { type: "object", properties: { city: { type: "string" } }, required: ["city"], … }
 */
export function jsonSchemaOf(schema: Schema, what: string): JsonObject {
  if (!isStandardSchema(schema)) return checkJsonSchema(schema, what);
  let converted: unknown;
  try {
    converted = convert(schema);
  } catch (cause) {
    throw schemaUnusable(
      what,
      `its library (${schema["~standard"].vendor}) cannot say it as JSON Schema: ${messageOf(cause)}`,
      cause,
    );
  }
  if (converted === undefined) {
    throw schemaUnusable(
      what,
      `its library (${schema["~standard"].vendor}) offers no JSON Schema; pass a plain JSON Schema beside it instead`,
    );
  }
  // Libraries hang functions and hidden properties on what they return; what crosses threads must be data only.
  return checkJsonSchema(JSON.parse(JSON.stringify(converted)), what);
}

/**
 * Runs a Standard Schema over a value, transformations and defaults included. JSON Schema passes the value through:
 * it was validated where the call was dispatched.
 *
 * @example
 * const parsed = await parseWith(z.coerce.number(), "7");
 * if (parsed.ok) parsed.value; // 7
 */
export async function parseWith<S extends Schema>(schema: S, value: unknown): Promise<Parsed<InferSchema<S>>> {
  return parseEagerly(schema, value);
}

/** As {@link parseWith}, but stays synchronous when the schema does: a tool without I/O then costs no tick. */
export function parseEagerly<S extends Schema>(
  schema: S,
  value: unknown,
): Parsed<InferSchema<S>> | Promise<Parsed<InferSchema<S>>> {
  // The cast states what passing the schema means; neither branch can prove it to the compiler.
  if (!isStandardSchema(schema)) return { ok: true, value: value as InferSchema<S> };
  const result = schema["~standard"].validate(value);
  return result instanceof Promise ? result.then(parsedOf<InferSchema<S>>) : parsedOf<InferSchema<S>>(result);
}

function parsedOf<T>(result: StandardSchemaV1.Result<unknown>): Parsed<T> {
  if (result.issues === undefined) return { ok: true, value: result.value as T };
  return { ok: false, issues: result.issues.map(issueLine) };
}

function issueLine(issue: StandardSchemaV1.Issue): string {
  if (issue.path === undefined || issue.path.length === 0) return issue.message;
  const path = issue.path.map((step) => String(typeof step === "object" ? step.key : step)).join(".");
  return `${path}: ${issue.message}`;
}

/** The optional parts of a schema library that can speak JSON Schema. */
interface Converting {
  readonly "~standard": { readonly jsonSchema?: { input?(options: { target: string }): unknown } };
  toJSONSchema?(options: { io: "input" }): unknown;
}

function convert(schema: StandardSchemaV1): unknown {
  const converting = schema as unknown as Converting; // Standard JSON Schema is a separate, optional interface
  const standard = converting["~standard"].jsonSchema;
  if (typeof standard?.input === "function") return standard.input({ target: "draft-07" });
  if (typeof converting.toJSONSchema === "function") return converting.toJSONSchema({ io: "input" });
  return undefined;
}

/** Catches what was never meant to be a schema; whether it is a correct one is the validator's business. */
function checkJsonSchema(schema: unknown, what: string): JsonObject {
  if (!isRecord(schema)) throw schemaUnusable(what, `it must be an object, not ${kindOf(schema)}`);
  checkIsNoShape(schema, what);
  const { type, properties, required } = schema;
  if (type !== undefined && typeof type !== "string" && !isStrings(type)) {
    throw schemaUnusable(what, `"type" must be a string or a list of strings, not ${kindOf(type)}`);
  }
  if (properties !== undefined && !isRecord(properties)) {
    throw schemaUnusable(what, `"properties" must be an object, not ${kindOf(properties)}`);
  }
  if (required !== undefined && !isStrings(required)) {
    throw schemaUnusable(what, `"required" must be a list of property names, not ${kindOf(required)}`);
  }
  return schema as JsonObject;
}

/** Schemas by field look like JSON Schema to nobody but TypeScript, and would let everything through. */
function checkIsNoShape(schema: Readonly<Record<string, unknown>>, what: string): void {
  for (const [field, value] of Object.entries(schema)) {
    if (!isStandardSchema(value) || KEYWORD.test(field)) continue;
    const { vendor } = value["~standard"];
    const wrapped = vendor === "zod" ? `z.object({ ${field}: … })` : `the object schema of ${vendor}`;
    throw schemaUnusable(what, `it is an object of schemas (${field}, …) and no schema. Wrap it: ${wrapped}`);
  }
  const fields = Object.keys(schema);
  if (fields.length === 0 || fields.some((field) => KEYWORD.test(field))) return;
  const example = '{ type: "object", properties: { city: { type: "string" } }, required: ["city"] }';
  throw schemaUnusable(what, `it has no keyword of JSON Schema, only ${fields.join(", ")}. Write ${example}`);
}

/** What a JSON Schema begins with in any draft. Other keywords may stand beside these. */
const KEYWORD =
  /^(\$.*|type|properties|required|additionalProperties|patternProperties|propertyNames|items|prefixItems|enum|const|anyOf|oneOf|allOf|not|if|then|else|definitions|title|description|default|examples|format|pattern|nullable|(min|max|exclusive|multiple|unique|dependent|unevaluated|contains|content).*)$/;

/** The error of a schema that is no use; `what` names whose it is. */
export function schemaUnusable(what: string, why: string, cause?: unknown): TroupeError {
  return new TroupeError("invalid_tool_schema", `The schema of ${what} cannot be used: ${why}.`, {
    details: { of: what },
    cause,
  });
}

function isStrings(value: unknown): value is readonly string[] {
  return Array.isArray(value) && value.every((item) => typeof item === "string");
}

function kindOf(value: unknown): string {
  if (value === null) return "null";
  return Array.isArray(value) ? "an array" : `a ${typeof value}`;
}

/** Options for single plugins, by plugin id: each reads its own, those of others are carried along. */
export class PluginOptions {
  static readonly empty = new PluginOptions();

  readonly plugins: Readonly<Record<string, Json>>;

  constructor(plugins: Readonly<Record<string, Json>> = {}) {
    this.plugins = plugins;
  }

  /** @example PluginOptions.typed("acme.code", { format: "markdown" }) */
  static typed(pluginId: string, value: Json): PluginOptions {
    return new PluginOptions({ [pluginId]: value });
  }

  /** These options with one more entry; an earlier one of the same plugin is replaced. */
  insertTyped(pluginId: string, value: Json): PluginOptions {
    return new PluginOptions({ ...this.plugins, [pluginId]: value });
  }

  /**
   * A plugin's entry as `read` understands it; undefined without one.
   *
   * @throws `plugin_options_invalid` when `read` does.
   * @example options.decode("acme.code", z.object({ format: z.string() }).parse)
   */
  decode<T>(pluginId: string, read: (value: Json) => T): T | undefined {
    const entry = Object.hasOwn(this.plugins, pluginId) ? this.plugins[pluginId] : undefined;
    if (entry === undefined) return undefined;
    try {
      return read(entry);
    } catch (cause) {
      throw pluginOptionsInvalid(`plugin ${pluginId} in this session`, messageOf(cause), {
        details: { pluginId },
        cause,
      });
    }
  }
}
