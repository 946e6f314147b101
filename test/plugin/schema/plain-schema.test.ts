import { Ajv } from "ajv";
import { Ajv2020 } from "ajv/dist/2020.js";
import fc from "fast-check";
import { describe, expect, it } from "vitest";
import type { JsonObject } from "../../../src/kernel/index.js";
import { isPlainSchema } from "../../../src/plugin/schema/plain-schema.js";

const words = fc.constantFrom("string", "number", "object", "strin", "", "a");
const value: fc.Arbitrary<unknown> = fc.oneof(
  words,
  fc.array(words, { maxLength: 3 }),
  fc.integer({ min: -1, max: 3 }),
  fc.double({ noNaN: true }),
  fc.boolean(),
  fc.constant(null),
);
const KEYWORDS =
  "type properties required additionalProperties items enum const default title description minimum maximum exclusiveMinimum exclusiveMaximum minLength maxLength minItems maxItems anyOf oneOf allOf $ref pattern hasOwnProperty x-vendor".split(
    " ",
  );
const { schema } = fc.letrec<{ schema: unknown }>((tie) => ({
  schema: fc.dictionary(
    fc.constantFrom(...KEYWORDS),
    fc.oneof(
      { depthSize: "small" },
      value,
      tie("schema"),
      fc.array(tie("schema"), { maxLength: 2 }),
      fc.dictionary(words, tie("schema"), { maxKeys: 2 }),
    ),
    { maxKeys: 3 },
  ),
}));

describe("isPlainSchema", () => {
  it.each<JsonObject>([
    {},
    { type: "object", properties: { city: { type: "string", description: "Where" } }, required: ["city"] },
    { type: ["string", "null"], enum: ["a", "b"], minLength: 1 },
    { anyOf: [{ const: { any: "thing" } }, { items: { type: "integer", minimum: 0 } }], additionalProperties: false },
    { $schema: "http://json-schema.org/draft-07/schema#", type: "object" },
  ])("is true of %j", (plain) => {
    expect(isPlainSchema(plain)).toBe(true);
  });

  it.each<JsonObject>([
    { type: "objekt" },
    { type: [] },
    { required: "city" },
    { required: ["a", "a"] },
    { enum: [] },
    { minLength: -1 },
    { properties: { a: { $ref: "#/$defs/none" } } },
    { properties: [] },
    { anyOf: [] },
    { hasOwnProperty: "type" },
    { $schema: "http://json-schema.org/draft-04/schema#" },
  ])("leaves %j to ajv", (schema) => {
    expect(isPlainSchema(schema)).toBe(false);
  });

  it("is true only of schemas that ajv, checking everything, can use in both drafts", () => {
    let plain = 0;
    const drafts = [Ajv, Ajv2020].map((Draft) => new Draft({ strict: false, logger: false, addUsedSchema: false }));
    fc.assert(
      fc.property(schema, (candidate) => {
        if (!isPlainSchema(candidate as JsonObject)) return;
        plain++;
        for (const ajv of drafts) ajv.compile(candidate as JsonObject);
      }),
      { numRuns: 300 },
    );
    expect(plain).toBeGreaterThan(20);
  });
});
