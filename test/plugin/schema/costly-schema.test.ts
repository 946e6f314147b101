import { expect, test } from "vitest";
import { z } from "zod";
import { isCostlySchema } from "../../../src/plugin/schema/costly-schema.js";
import { jsonSchemaOf } from "../../../src/plugin/schema/index.js";

const object = (properties: object) => ({ type: "object", properties }) as never;

test.each([
  ["a pattern", object({ a: { type: "string", pattern: "x" } })],
  [
    "a pattern in a definition",
    { ...(object({ a: { $ref: "#/$defs/a" } }) as object), $defs: { a: { pattern: "x" } } },
  ],
  ["a pattern of names", object({ a: { propertyNames: { pattern: "x" } } })],
  ["properties by pattern", object({ a: { patternProperties: { "x+": {} } } })],
  ["items that are to be unique", object({ a: { uniqueItems: true, format: "x" } })],
  ["two references", object({ a: { anyOf: [{ $ref: "#" }, { $ref: "#" }] } })],
])("a schema with %s may take long", (_, schema) => {
  expect(isCostlySchema(schema as never)).toBe(true);
});

test.each([
  ["plain", object({ a: { type: "string", maxLength: 3 } })],
  ["with a property called pattern", object({ pattern: { type: "string", format: "x" } })],
  ["that refers to itself once", object({ children: { type: "array", items: { $ref: "#" } } })],
  ["with items that need not be unique", object({ a: { uniqueItems: false } })],
])("a schema %s is quick", (_, schema) => {
  expect(isCostlySchema(schema)).toBe(false);
});

test("a recursive zod object is quick, an e-mail address of zod is not", () => {
  const Node = z.object({
    name: z.string(),
    get children() {
      return z.array(Node);
    },
  });
  expect(isCostlySchema(jsonSchemaOf(Node, "tool t"))).toBe(false);
  expect(isCostlySchema(jsonSchemaOf(z.object({ to: z.email() }), "tool t"))).toBe(true);
});
