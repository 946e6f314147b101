import { isRecord, type Json } from "../../kernel/index.js";

const TYPES: readonly unknown[] = ["array", "boolean", "integer", "null", "number", "object", "string"];

const isText = (value: Json): boolean => typeof value === "string";
const isNumber = (value: Json): boolean => typeof value === "number";
const isCount = (value: Json): boolean => Number.isInteger(value) && (value as number) >= 0;
const isSchemas = (value: Json): boolean => Array.isArray(value) && value.length > 0 && value.every(isPlainSchema);

/** The keywords most tools need, with the values that both drafts allow for them and mean the same by. */
const KEYWORDS = new Map<string, (value: Json) => boolean>(
  Object.entries({
    $schema: (value) =>
      value === "https://json-schema.org/draft/2020-12/schema" || value === "http://json-schema.org/draft-07/schema#",
    type: (value) =>
      TYPES.includes(value) ||
      (Array.isArray(value) && value.length > 0 && isDistinct(value) && value.every((type) => TYPES.includes(type))),
    properties: (value) => isRecord(value) && Object.values(value).every(isPlainSchema),
    required: (value) => Array.isArray(value) && value.every(isText) && isDistinct(value),
    additionalProperties: isPlainSchema,
    items: isPlainSchema,
    enum: (value) =>
      Array.isArray(value) &&
      value.length > 0 &&
      value.every((one) => isText(one) || isNumber(one)) &&
      isDistinct(value),
    const: () => true,
    default: () => true,
    title: isText,
    description: isText,
    minimum: isNumber,
    maximum: isNumber,
    exclusiveMinimum: isNumber,
    exclusiveMaximum: isNumber,
    minLength: isCount,
    maxLength: isCount,
    minItems: isCount,
    maxItems: isCount,
    anyOf: isSchemas,
    oneOf: isSchemas,
    allOf: isSchemas,
  }),
);

/**
 * Whether a schema is of keywords and values that cannot be wrong, so that nobody has to load ajv to be sure of it.
 * False says nothing against a schema: references, patterns and rarer keywords are for ajv to judge.
 */
export function isPlainSchema(schema: Json): boolean {
  if (typeof schema === "boolean") return true;
  return (
    isRecord(schema) && Object.entries(schema).every(([keyword, value]) => KEYWORDS.get(keyword)?.(value) === true)
  );
}

function isDistinct(values: readonly Json[]): boolean {
  return new Set(values).size === values.length;
}
