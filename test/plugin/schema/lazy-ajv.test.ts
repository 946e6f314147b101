import { createRequire } from "node:module";
import { expect, it } from "vitest";
import { compileSchema, validateArgs } from "../../../src/plugin/index.js";

const loaded = () =>
  Object.keys(createRequire(import.meta.url).cache).some((file) => file.endsWith("/ajv/dist/2020.js"));

it("ajv is loaded by the first call of a tool with a plain schema, not by its registration", () => {
  const schema = { type: "object", properties: { city: { type: "string" } }, required: ["city"] };
  compileSchema(schema, "weather");
  expect(loaded()).toBe(false);
  expect(validateArgs(schema, { city: 7 })).toContain("city must be string");
  expect(loaded()).toBe(true);
});

it("a schema only ajv can judge is still refused when its tool is registered", () => {
  expect(() => compileSchema({ properties: { a: { $ref: "#/$defs/none" } } }, "weather")).toThrow(/tool weather/);
});
