import { describe, expect, it } from "vitest";
import { z } from "zod";
import { compileSchema, validateArgs } from "../../../src/plugin/index.js";
import { jsonSchemaOf } from "../../../src/plugin/schema/schema.js";

const DRAFT_07 = "http://json-schema.org/draft-07/schema#";
const DRAFT_2020 = "https://json-schema.org/draft/2020-12/schema";

describe("validateArgs", () => {
  const weather = {
    type: "object",
    properties: { city: { type: "string" }, unit: { enum: ["celsius", "kelvin"] } },
    required: ["city"],
    additionalProperties: false,
  } as const;

  it("says nothing about arguments that fit", () => {
    expect(validateArgs(weather, { city: "Oslo", unit: "kelvin" })).toBeUndefined();
  });

  it.each([
    [{ city: 7 }, "city must be string"],
    [{}, "must have required property 'city'"],
    [{ city: "Oslo", unit: "f" }, 'unit must be equal to one of the allowed values: ["celsius","kelvin"]'],
    [{ city: "Oslo", when: "now" }, 'must NOT have additional properties: "when"'],
    ["Oslo", "must be object"],
    [
      { city: 7, unit: 1 },
      'city must be string; unit must be equal to one of the allowed values: ["celsius","kelvin"]',
    ],
  ])("tells the model what is wrong with %j", (args, issue) => {
    expect(validateArgs(weather, args)).toBe(`The arguments do not fit the tool's schema: ${issue}.`);
  });

  it("names the path of a nested value", () => {
    const schema = { properties: { list: { items: { properties: { n: { type: "number" } } } } } };
    expect(validateArgs(schema, { list: [{ n: 1 }, { n: "x" }] })).toBe(
      "The arguments do not fit the tool's schema: list.1.n must be number.",
    );
  });

  it("counts what it does not list", () => {
    const schema = { type: "object", required: ["a", "b", "c", "d", "e", "f", "g"] };
    expect(validateArgs(schema, {})).toMatch(/'e'; and 2 more\.$/);
  });

  it("reads draft-07 and draft 2020-12 each by its own rules", () => {
    const tuple07 = { $schema: DRAFT_07, properties: { pair: { items: [{ type: "string" }, { type: "number" }] } } };
    const tuple2020 = {
      $schema: DRAFT_2020,
      properties: { pair: { prefixItems: [{ type: "string" }, { type: "number" }] } },
    };
    for (const schema of [tuple07, tuple2020]) {
      expect(validateArgs(schema, { pair: ["a", 1] })).toBeUndefined();
      expect(validateArgs(schema, { pair: [1, "a"] })).toContain("pair.0 must be string");
    }
  });

  it("takes a schema without $schema for draft 2020-12", () => {
    const schema = { properties: { pair: { prefixItems: [{ type: "string" }] } } };
    expect(validateArgs(schema, { pair: [1] })).toContain("pair.0 must be string");
  });

  it("validates with what zod describes", () => {
    const schema = jsonSchemaOf(z.object({ email: z.email(), n: z.int().min(1) }), "tool a");
    expect(validateArgs(schema, { email: "a@example.org", n: 1 })).toBeUndefined();
    expect(validateArgs(schema, { email: "a@example.org", n: 0.5 })).toContain("n must be integer");
  });

  it("leaves the arguments as they are", () => {
    const args = {};
    validateArgs({ properties: { n: { type: "number", default: 3 } } }, args);
    expect(args).toEqual({});
  });

  it("keeps two schemas with the same $id apart", () => {
    const one = { $id: "input", properties: { a: { type: "string" } } };
    const two = { $id: "input", properties: { a: { type: "number" } } };
    expect(validateArgs(one, { a: "x" })).toBeUndefined();
    expect(validateArgs(two, { a: "x" })).toContain("a must be number");
  });

  it("ignores keywords and formats it does not know", () => {
    expect(validateArgs({ properties: { a: { format: "colour", "x-vendor": 1 } } }, { a: "red" })).toBeUndefined();
  });
});

describe("compileSchema", () => {
  it.each([
    ["a type that does not exist", { type: "objekt" }],
    ["a reference to nowhere", { properties: { a: { $ref: "#/$defs/none" } } }],
    ["a pattern that is no regular expression", { properties: { a: { pattern: "(" } } }],
    ["a draft nobody reads any more", { $schema: "http://json-schema.org/draft-04/schema#" }],
    ["an asynchronous schema", { $async: true, type: "object" }],
  ])("refuses %s and names the tool", (_, schema) => {
    expect(() => compileSchema(schema, "weather")).toThrow(
      expect.objectContaining({
        code: "invalid_tool_schema",
        message: expect.stringContaining("The schema of tool weather cannot be used"),
      }),
    );
  });
});

describe("a schema that refers to itself", () => {
  const tree = () => ({ type: "object", properties: { kids: { type: "array", items: { $ref: "#" } } } });

  it("can be that of a tool, and is checked all the way down", () => {
    compileSchema(tree(), "tree");
    expect(validateArgs(tree(), { kids: [{ kids: [] }] })).toBeUndefined();
    expect(validateArgs(tree(), { kids: [{ kids: 3 }] })).toContain("kids.0.kids must be array");
  });

  it("and never ends is an issue of the arguments, not thrown out of the tool", () => {
    expect(validateArgs({ anyOf: [{ $ref: "#" }] }, {})).toContain("they cannot be checked");
  });

  it("may share its $id with another tool's", () => {
    const [one, two] = ["string", "number"].map((type) => ({ $id: "https://x.test/a", properties: { a: { type } } }));
    expect(validateArgs(one as never, { a: 1 })).toContain("a must be string");
    expect(validateArgs(two as never, { a: 1 })).toBeUndefined();
  });
});
