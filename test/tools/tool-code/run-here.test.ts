import { describe, expect, it } from "vitest";
import { z } from "zod";
import { defineTool } from "../../../src/plugin/tool/tool.js";
import { toolError } from "../../../src/plugin/tool/tool-answer.js";
import { type CallContext, runHere } from "../../../src/tools/index.js";

const ctx: CallContext = {
  sessionId: "s",
  turnId: "t",
  callId: "c",
  completionKey: "k",
  signal: new AbortController().signal,
};

describe("runHere", () => {
  it("gives the tool the arguments its schema made of them, and the context", () => {
    const tool = defineTool({
      description: "Counts.",
      inputSchema: z.object({ city: z.string().transform((city) => city.length), days: z.number().default(3) }),
      execute: (args, { callId }) => ({ args, callId }),
    });
    expect(runHere(tool, { city: "Oslo" }, ctx)).toEqual({ args: { city: 4, days: 3 }, callId: "c" });
  });

  it("answers at once when the tool does, with any schema", () => {
    const hello = defineTool({ description: "Greets.", inputSchema: { type: "object" }, execute: () => "hello" });
    expect(runHere(hello, {}, ctx)).toBe("hello");
  });

  it("refuses arguments the schema does not take, without running the tool", () => {
    const tool = defineTool({
      description: "Counts.",
      inputSchema: z.object({ n: z.number().refine((n) => n % 2 === 0, "must be even") }),
      execute: () => expect.unreachable(),
    });
    expect(() => runHere(tool, { n: 3 }, ctx)).toThrow(
      expect.objectContaining({
        code: "invalid_tool_args",
        message: "The arguments do not fit the tool's schema: n: must be even.",
        details: { issues: ["n: must be even"] },
      }),
    );
  });

  it("waits for an asynchronous schema and an asynchronous tool", async () => {
    const tool = defineTool({
      description: "Echoes.",
      inputSchema: z.object({ a: z.string().refine(async (a) => a !== "no", "must not be no") }),
      execute: async ({ a }) => a.toUpperCase(),
    });
    expect(await runHere(tool, { a: "x" }, ctx)).toBe("X");
    await expect(runHere(tool, { a: "no" }, ctx)).rejects.toMatchObject({ code: "invalid_tool_args" });
  });

  it("turns no result into null", () => {
    expect(runHere({ description: "Does.", inputSchema: {}, execute() {} }, {}, ctx)).toBeNull();
  });

  it("refuses a result that cannot travel already at home", async () => {
    const now = defineTool({ description: "Leaks.", inputSchema: {}, execute: () => () => 1 });
    const later = defineTool({ description: "Leaks.", inputSchema: {}, execute: async () => 1n });
    expect(() => runHere(now, {}, ctx)).toThrow(expect.objectContaining({ code: "tool_result_unserialisable" }));
    await expect(runHere(later, {}, ctx)).rejects.toMatchObject({ code: "tool_result_unserialisable" });
  });

  it("throws what the tool throws, marked as the tool's, with the tool's stack and as its cause", () => {
    const tool = defineTool({
      description: "Fails.",
      inputSchema: {},
      execute() {
        throw new RangeError("too far");
      },
    });
    const expected = {
      code: "tool_failed",
      message: "too far",
      details: { thrown: true },
      cause: new RangeError("too far"),
    };
    expect(() => runHere(tool, {}, ctx)).toThrow(
      expect.objectContaining({ ...expected, stack: expect.stringContaining("run-here.test.ts") }),
    );
  });

  it("throws what the tool wrote for the model as it is", async () => {
    const words = toolError("There is no order 7.");
    const tool = defineTool({ description: "Fails.", inputSchema: {}, execute: () => Promise.reject(words) });
    await expect(runHere(tool, {}, ctx)).rejects.toBe(words);
  });
});
