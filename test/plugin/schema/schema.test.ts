import { describe, expect, expectTypeOf, it } from "vitest";
import { z } from "zod";
import type { Json, JsonObject } from "../../../src/kernel/index.js";
import {
  type InferSchema,
  isStandardSchema,
  jsonSchemaOf,
  parseEagerly,
  parseWith,
} from "../../../src/plugin/schema/schema.js";

/** A Standard Schema of a library that knows nothing of JSON Schema. */
const bare = {
  "~standard": {
    version: 1 as const,
    vendor: "bare",
    validate: (value: unknown) =>
      value === 1 ? { value } : { issues: [{ message: "must be one", path: ["list", { key: 0 }] }, { message: "no" }] },
  },
};

describe("isStandardSchema", () => {
  it("knows a zod schema, and a schema that is a function", () => {
    expect(isStandardSchema(z.string())).toBe(true);
    expect(isStandardSchema(Object.assign(() => {}, bare))).toBe(true);
  });

  it("says no to JSON Schema and to anything else", () => {
    for (const other of [{ type: "string" }, null, undefined, "string", { "~standard": 1 }]) {
      expect(isStandardSchema(other)).toBe(false);
    }
  });
});

describe("jsonSchemaOf", () => {
  it("passes plain JSON Schema as it is", () => {
    const schema = { type: "object", properties: { a: { type: "number" } }, required: ["a"] } as const;
    expect(jsonSchemaOf(schema, "tool a")).toBe(schema);
  });

  it("describes what a zod schema accepts, not what it turns it into", () => {
    const schema = z.object({ city: z.string().transform((city) => city.length), days: z.number().default(3) });
    expect(jsonSchemaOf(schema, "tool weather")).toEqual({
      $schema: "http://json-schema.org/draft-07/schema#",
      type: "object",
      properties: { city: { type: "string" }, days: { default: 3, type: "number" } },
      required: ["city"],
    });
  });

  it("gives data that crosses a thread", () => {
    const schema = jsonSchemaOf(z.object({ city: z.string() }), "tool weather");
    expect(structuredClone(schema)).toEqual(schema);
  });

  it("falls back to a toJSONSchema method", () => {
    const schema = { ...bare, toJSONSchema: () => ({ type: "object" }) };
    expect(jsonSchemaOf(schema, "tool a")).toEqual({ type: "object" });
  });

  it("asks for a JSON Schema when the library offers none", () => {
    expect(() => jsonSchemaOf(bare, "tool a")).toThrow(
      expect.objectContaining({
        code: "invalid_tool_schema",
        message:
          "The schema of tool a cannot be used: its library (bare) offers no JSON Schema; pass a plain JSON Schema beside it instead.",
      }),
    );
  });

  it("names the owner when a type has no JSON Schema", () => {
    expect(() => jsonSchemaOf(z.object({ at: z.date() }), "tool calendar")).toThrow(
      expect.objectContaining({
        code: "invalid_tool_schema",
        message: expect.stringContaining("The schema of tool calendar"),
      }),
    );
  });

  it.each([
    ["an array", []],
    ["null", null],
    ["a string", "object"],
    ["a type that is a number", { type: 1 }],
    ["properties that are a list", { properties: [] }],
    ["required that is one name", { required: "city" }],
  ])("refuses %s", (_, schema) => {
    expect(() => jsonSchemaOf(schema as unknown as JsonObject, "tool a")).toThrow(
      expect.objectContaining({ code: "invalid_tool_schema" }),
    );
  });
});

describe("parseWith", () => {
  it("gives the value as the schema transformed it", async () => {
    const schema = z.object({ city: z.string().transform((city) => city.length), days: z.number().default(3) });
    expect(await parseWith(schema, { city: "Oslo" })).toEqual({ ok: true, value: { city: 4, days: 3 } });
  });

  it("lists every issue with its path", async () => {
    expect(await parseWith(bare, 2)).toEqual({ ok: false, issues: ["list.0: must be one", "no"] });
  });

  it("waits for a schema that is asynchronous", async () => {
    const schema = z.string().refine(async (text) => text === "yes", "must be yes");
    expect(await parseWith(schema, "yes")).toEqual({ ok: true, value: "yes" });
    expect(await parseWith(schema, "no")).toEqual({ ok: false, issues: ["must be yes"] });
  });

  it("passes a value through a JSON Schema", async () => {
    expect(await parseWith({ type: "string" }, 7)).toEqual({ ok: true, value: 7 });
  });

  it("stays synchronous in parseEagerly when the schema is", () => {
    expect(parseEagerly(z.coerce.number(), "7")).toEqual({ ok: true, value: 7 });
  });
});

it("infers the type behind a schema", () => {
  const schema = z.object({ city: z.string().transform((city) => city.length) });
  expectTypeOf<InferSchema<typeof schema>>().toEqualTypeOf<{ city: number }>();
  expectTypeOf<InferSchema<{ readonly type: "object" }>>().toEqualTypeOf<JsonObject>();
  expectTypeOf<InferSchema<JsonObject>>().toEqualTypeOf<Json>();
});
