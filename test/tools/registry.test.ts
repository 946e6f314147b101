import { describe, expect, it } from "vitest";
import type { JsonObject } from "../../src/kernel/index.js";
import { type RegisteredTool, registerTool, type ToolHomeRef, ToolRegistry } from "../../src/tools/index.js";

const tool = (
  name: string,
  home: ToolHomeRef = { kind: "host" },
  inputSchema: JsonObject = { type: "object" },
): RegisteredTool => registerTool(name, { description: name, inputSchema }, home);
const names = (specs: readonly { name: string }[]) => specs.map((spec) => spec.name);
const NONE: ReadonlySet<string> = new Set();

describe("a tool registry", () => {
  it("finds a tool by name", () => {
    const weather = tool("weather");
    const registry = new ToolRegistry([tool("a"), weather]);
    expect(registry.get("weather")).toBe(weather);
    expect(registry.get("toString")).toBeUndefined();
  });

  it("gives a tool a minute unless it says otherwise", () => {
    expect(tool("a").timeoutMs).toBe(60_000);
    const quick = registerTool("a", { description: "a", inputSchema: {}, timeoutMs: 5 }, { kind: "host" });
    expect(quick.timeoutMs).toBe(5);
  });

  it.each<[ToolHomeRef, ToolHomeRef, string]>([
    [{ kind: "host" }, { kind: "plugin", pluginId: "acme.x" }, "one of the host application, one of plugin acme.x"],
    [
      { kind: "pool", module: "file:///w.js" },
      { kind: "host" },
      "one of module file:///w.js, one of the host application",
    ],
  ])("refuses two tools of one name and says whose they are", (first, second, whose) => {
    expect(() => new ToolRegistry([tool("weather", first), tool("weather", second)])).toThrow(
      expect.objectContaining({ code: "duplicate_tool", message: `Two tools are called weather: ${whose}.` }),
    );
  });

  it("refuses a broken schema and a bad name when it is built, not when the tool is called", () => {
    expect(() => new ToolRegistry([tool("weather", { kind: "host" }, { type: "objekt" })])).toThrow(
      expect.objectContaining({ code: "invalid_tool_schema", message: expect.stringContaining("tool weather") }),
    );
    expect(() => new ToolRegistry([tool("a b")])).toThrow(expect.objectContaining({ code: "invalid_tool" }));
  });

  it("refuses arguments that are not an object", () => {
    expect(() => new ToolRegistry([tool("weather", { kind: "host" }, { type: "string" })])).toThrow(
      expect.objectContaining({
        code: "invalid_tool_schema",
        message: 'The schema of tool weather cannot be used: a tool\'s arguments must be an object, not "string".',
      }),
    );
  });

  it("orders the catalog by name, however the tools were registered", () => {
    const registry = new ToolRegistry([tool("b"), tool("a_2"), tool("a"), tool("C")]);
    expect(names(registry.specs(NONE))).toEqual(["C", "a", "a_2", "b"]);
  });

  it("leaves hidden tools out of the catalog", () => {
    const registry = new ToolRegistry([tool("b"), tool("a"), tool("c")]);
    expect(names(registry.specs(new Set(["b", "unknown"])))).toEqual(["a", "c"]);
  });

  it("gives the same catalog for the same hidden names, and another one when the set changes", () => {
    const registry = new ToolRegistry([tool("b"), tool("a"), tool("c")]);
    const hidden = new Set(["a", "b"]);
    const first = registry.specs(hidden);
    expect(registry.specs(new Set(["b", "other", "a"]))).toBe(first);
    hidden.delete("a");
    expect(names(registry.specs(hidden))).toEqual(["a", "c"]);
    expect(registry.specs(new Set(["other"]))).toBe(registry.specs(NONE));
  });
});
