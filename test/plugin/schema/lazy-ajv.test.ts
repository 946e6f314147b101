import { execFile } from "node:child_process";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { expect, it } from "vitest";
import { compileSchema } from "../../../src/plugin/index.js";

const root = fileURLToPath(new URL("../../..", import.meta.url));

it("ajv is loaded by the first call of a tool with a plain schema, not by its registration", async () => {
  const program = `
    import { createRequire } from "node:module";
    import { compileSchema, validateArgs } from "troupe/plugin";
    const loaded = () => Object.keys(createRequire(import.meta.url).cache).some((file) => file.endsWith("/ajv.cjs"));
    const schema = { type: "object", properties: { city: { type: "string" } }, required: ["city"] };
    compileSchema(schema, "weather");
    const before = loaded();
    console.log(JSON.stringify([before, validateArgs(schema, { city: 7 }), loaded()]));`;
  const { stdout } = await promisify(execFile)(process.execPath, ["--input-type=module", "--eval", program], {
    cwd: root,
  });
  expect(JSON.parse(stdout)).toEqual([false, "The arguments do not fit the tool's schema: city must be string.", true]);
});

it("a schema only ajv can judge is still refused when its tool is registered", () => {
  expect(() => compileSchema({ properties: { a: { $ref: "#/$defs/none" } } }, "weather")).toThrow(/tool weather/);
});
