import type { Ajv, AnySchemaObject, ErrorObject, Options, ValidateFunction } from "ajv";
import type { Ajv2020 } from "ajv/dist/2020.js";
import { type Json, type JsonObject, messageOf } from "../../kernel/index.js";
import { isPlainSchema } from "./plain-schema.js";
import { schemaUnusable } from "./schema.js";

/** Beyond a few problems the model is better told to read the schema again. */
const MAX_ISSUES = 5;
/** Distinct schemas kept by content; sessions share their tools, so the number grows with tools, not with sessions. */
const MAX_KEPT = 1024;

const options: Options = {
  // Real-world schemas carry vendor keywords; only what makes a schema unusable is an error.
  strict: false,
  allErrors: true,
  // Compiling the schema of schemas costs more than all else here; `compile` asks for this check where it is needed.
  validateSchema: false,
  // Formats need a further dependency and a model is not to be refused over one.
  validateFormats: false,
  logger: false,
};
// Loaded with the first schema that needs it: a thread that never validates does not pay for ajv, which would double the
// time it takes to start. `require`, because compiling is synchronous.
const load = (module: string): unknown =>
  process.getBuiltinModule("node:module").createRequire(import.meta.url)(module);
let draft07: Ajv | undefined;
let draft2020: Ajv2020 | undefined;

const byObject = new WeakMap<JsonObject, ValidateFunction>();
const byContent = new Map<string, ValidateFunction>();
/** The contents of schemas that are not plain and that ajv has compiled, here or on another thread of the runtime. */
const usable = new Set<string>();

/**
 * Throws `invalid_tool_schema` naming the tool when its schema is broken. A plain schema cannot be, and one that another
 * thread has compiled is not: they are compiled when the tool is first called. Any other is compiled now, once per content.
 *
 * @example
 * compileSchema({ type: "object", required: "city" }, "weather"); // throws: the schema of tool weather …
 */
export function compileSchema(schema: JsonObject, toolName: string): void {
  if (isPlainSchema(schema) || byObject.has(schema) || usable.has(JSON.stringify(schema))) return;
  validatorOf(schema, `tool ${toolName}`);
}

/** Loads what checks values, which takes a while the first time; true when it did. */
export function loadChecker(): boolean {
  if (draft2020 !== undefined) return false;
  ajvFor(undefined);
  return true;
}

/** The schemas this thread need not check again, as JSON; for {@link trustSchemas} of another thread. */
export function usableSchemas(): readonly string[] {
  return [...usable];
}

/** Takes over what another thread of the runtime has found usable: checking a schema by the schema of schemas costs most. */
export function trustSchemas(contents: readonly string[]): void {
  for (const content of contents) trust(content);
}

function trust(content: string): void {
  if (usable.size >= MAX_KEPT) usable.delete(usable.keys().next().value as string);
  usable.add(content);
}

/**
 * Undefined when the arguments fit, otherwise a sentence the model can act on.
 *
 * @example
 * validateArgs({ type: "object", properties: { city: { type: "string" } } }, { city: 7 });
 * // "The arguments do not fit the tool's schema: city must be string."
 */
export function validateArgs(schema: JsonObject, args: Json): string | undefined {
  const issues = schemaIssues(schema, args);
  if (issues.length === 0) return undefined;
  const rest = issues.length - MAX_ISSUES;
  const shown = issues.slice(0, MAX_ISSUES).join("; ");
  return `The arguments do not fit the tool's schema: ${shown}${rest > 0 ? `; and ${rest} more` : ""}.`;
}

/** What is wrong with a value, a line each; empty when it fits. */
export function schemaIssues(schema: JsonObject, value: unknown, what = "this tool"): readonly string[] {
  const validate = validatorOf(schema, what);
  try {
    return validate(value) ? [] : [...new Set((validate.errors ?? []).map(issueLine))];
  } catch (thrown) {
    // A schema that refers to itself for the same value has no end.
    return [`they cannot be checked: ${messageOf(thrown)}`];
  }
}

function validatorOf(schema: JsonObject, what: string): ValidateFunction {
  const compiled = byObject.get(schema);
  if (compiled !== undefined) return compiled;
  // The same tool reaches a thread as another object with every session that registers it for itself.
  const content = JSON.stringify(schema);
  let validate = byContent.get(content);
  if (validate === undefined) {
    const known = isPlainSchema(schema) || usable.has(content);
    validate = compile(schema, { what, known });
    if (!known) trust(content);
    if (byContent.size >= MAX_KEPT) byContent.delete(byContent.keys().next().value as string);
    byContent.set(content, validate);
  }
  byObject.set(schema, validate);
  return validate;
}

/** `known`: nothing can be wrong with it. */
function compile(
  schema: JsonObject,
  { what, known }: { readonly what: string; readonly known: boolean },
): ValidateFunction {
  const { $schema: dialect, ...body } = schema;
  try {
    // ajv would return a promise for these, which is neither yes nor no.
    if (body.$async !== undefined) throw new Error("$async schemas are not supported");
    const ajv = ajvFor(dialect);
    if (!known) ajv.validateSchema(body as AnySchemaObject, true);
    try {
      return ajv.compile(body as AnySchemaObject);
    } finally {
      // The function lives in our maps; ajv's own strong reference would keep it for ever, and its $id taken.
      ajv.removeSchema(body as AnySchemaObject);
    }
  } catch (cause) {
    throw schemaUnusable(what, messageOf(cause), cause);
  }
}

/** Without `$schema` the current draft is meant, as model providers and MCP do. */
function ajvFor(dialect: Json | undefined): Ajv | Ajv2020 {
  if (dialect === undefined || (typeof dialect === "string" && dialect.includes("2020-12"))) {
    if (draft2020 === undefined) {
      const { Ajv2020 } = load("ajv/dist/2020.js") as typeof import("ajv/dist/2020.js");
      draft2020 = new Ajv2020(options);
    }
    return draft2020;
  }
  if (typeof dialect === "string" && dialect.includes("draft-07")) {
    if (draft07 === undefined) {
      const { Ajv } = load("ajv") as typeof import("ajv");
      draft07 = new Ajv(options);
    }
    return draft07;
  }
  throw new Error(`$schema must be draft-07 or draft 2020-12, not ${JSON.stringify(dialect)}`);
}

function issueLine(error: ErrorObject): string {
  const path = error.instancePath.slice(1).replaceAll("/", ".");
  return `${path}${path === "" ? "" : " "}${error.message ?? error.keyword}${allowed(error)}`;
}

/** ajv says that a value is not allowed; the model also needs to know which are. */
function allowed({ keyword, params }: ErrorObject): string {
  switch (keyword) {
    case "enum":
      return `: ${JSON.stringify(params.allowedValues)}`;
    case "const":
      return `: ${JSON.stringify(params.allowedValue)}`;
    case "additionalProperties":
      return `: ${JSON.stringify(params.additionalProperty)}`;
    default:
      return "";
  }
}
