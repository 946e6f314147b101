import { describe, expect, expectTypeOf, it } from "vitest";
import { z } from "zod";
import type { JsonObject } from "../../../src/kernel/index.js";
import { checkToolDefinition, checkToolName, defineTool, type ToolContext } from "../../../src/plugin/tool/tool.js";

const tool = { description: "Says hello.", inputSchema: { type: "object" }, execute: () => "hello" };

describe("defineTool", () => {
  it("gives back the definition it got", () => {
    expect(defineTool(tool)).toBe(tool);
  });

  it("types the arguments from the schema", () => {
    defineTool({
      description: "Counts.",
      inputSchema: z.object({ city: z.string().transform((city) => city.length) }),
      execute(args, ctx) {
        expectTypeOf(args).toEqualTypeOf<{ city: number }>();
        expectTypeOf(ctx).toExtend<ToolContext>();
      },
    });
    defineTool({
      description: "Counts.",
      inputSchema: { type: "object" },
      options: z.object({ unit: z.string().default("m") }),
      execute(_args, { options }) {
        expectTypeOf(options).toEqualTypeOf<{ unit: string }>();
      },
    });
    defineTool({
      description: "Counts.",
      inputSchema: { type: "object", properties: { city: { type: "string" } } },
      execute(args) {
        expectTypeOf(args).toEqualTypeOf<JsonObject>();
      },
    });
  });
});

describe("a tool name", () => {
  it.each(["a", "read_file", "read-file", "A9", "x".repeat(64)])("may be %s", (name) => {
    expect(checkToolName(name)).toBe(name);
  });

  it.each(["", "read file", "a.b", "schön", "x".repeat(65), undefined, 7])("may not be %j", (name) => {
    expect(() => checkToolName(name)).toThrow(expect.objectContaining({ code: "invalid_tool" }));
  });
});

describe("checkToolDefinition", () => {
  it("gives back a good definition", () => {
    expect(checkToolDefinition("hello", tool)).toBe(tool);
  });

  it("accepts a tool that wants no grace", () => {
    expect(() => checkToolDefinition("hello", { ...tool, cancelGraceMs: 0 })).not.toThrow();
  });

  it("accepts a Standard Schema that is a function", () => {
    const inputSchema = Object.assign(() => {}, { "~standard": z.object({})["~standard"] });
    expect(() => checkToolDefinition("hello", { ...tool, inputSchema })).not.toThrow();
  });

  it.each([
    ["a name with a space", "say hello", tool, "its name must be"],
    ["nothing", "hello", undefined, "Tool hello: it must be an object"],
    ["no description", "hello", { ...tool, description: undefined }, "Tool hello: description must say"],
    ["a blank description", "hello", { ...tool, description: "  " }, "Tool hello: description must say"],
    ["no schema", "hello", { ...tool, inputSchema: undefined }, "Tool hello: inputSchema must be"],
    ["no execute", "hello", { ...tool, execute: "hello" }, "Tool hello: execute must be a function, not string"],
    ["a time limit of zero", "hello", { ...tool, timeoutMs: 0 }, "Tool hello: timeoutMs must be"],
    ["a time limit no timer holds", "hello", { ...tool, timeoutMs: 2 ** 31 }, "Tool hello: timeoutMs must be"],
    ["a grace below zero", "hello", { ...tool, cancelGraceMs: -1 }, "Tool hello: cancelGraceMs must be"],
    ["a grace no timer holds", "hello", { ...tool, cancelGraceMs: 2 ** 31 }, "Tool hello: cancelGraceMs must be"],
  ])("refuses %s", (_, name, definition, message) => {
    expect(() => checkToolDefinition(name, definition)).toThrow(
      expect.objectContaining({ code: "invalid_tool", message: expect.stringContaining(message) }),
    );
  });
});
