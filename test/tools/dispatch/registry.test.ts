import { describe, expect, it } from "vitest";
import type { JsonObject } from "../../../src/kernel/index.js";
import { type RegisteredTool, registerTool, type ToolHomeRef, ToolRegistry } from "../../../src/tools/index.js";

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

describe("tools that have an id of their own", () => {
  const identified = (name: string, id: string, onDemand = false): RegisteredTool =>
    registerTool(name, { id, onDemand, description: name, inputSchema: {} }, { kind: "host" });

  it("are found by it, other tools by their name", () => {
    const weather = identified("weather", "acme.weather");
    const shell = tool("shell");
    const registry = new ToolRegistry([weather, shell]);
    expect(registry.byId("acme.weather")).toBe(weather);
    expect(registry.byId("weather")).toBeUndefined();
    expect(registry.byId("shell")).toBe(shell);
    expect(registry.get("weather")).toBe(weather);
  });

  it("are duplicates when they share a name, though their ids differ", () => {
    const plugin: ToolHomeRef = { kind: "plugin", pluginId: "acme.x" };
    const other = registerTool("weather", { id: "other", description: "w", inputSchema: {} }, plugin);
    expect(() => new ToolRegistry([identified("weather", "acme.weather"), other])).toThrow(
      expect.objectContaining({
        code: "duplicate_tool",
        message: "Two tools are called weather: one of the host application, one of plugin acme.x.",
      }),
    );
  });

  // turn §8.73
  it("are duplicates when they share an id, though their names differ", () => {
    expect(() => new ToolRegistry([identified("weather", "w"), identified("forecast", "w")])).toThrow(
      expect.objectContaining({
        code: "duplicate_tool",
        message: "Two tools have the id w: one of the host application, one of the host application.",
      }),
    );
  });

  it("are duplicates of a tool whose name is their id", () => {
    expect(() => new ToolRegistry([tool("weather"), identified("forecast", "weather")])).toThrow(
      expect.objectContaining({ code: "duplicate_tool" }),
    );
  });

  it("cannot have an empty one", () => {
    expect(() => new ToolRegistry([identified("weather", "")])).toThrow(
      expect.objectContaining({
        code: "invalid_tool",
        message: "Tool weather: its id must be a string that is not empty.",
      }),
    );
  });

  it("are in no catalog when they are on demand, and may have the name of another tool", () => {
    const shell = tool("shell");
    const sandboxed = identified("shell", "acme.shell", true);
    const registry = new ToolRegistry([sandboxed, shell, identified("shell", "other.shell", true)]);
    expect(registry.get("shell")).toBe(shell);
    expect(registry.tools).toEqual([shell]);
    expect(names(registry.specs(NONE))).toEqual(["shell"]);
    expect(registry.byId("acme.shell")).toBe(sandboxed);
  });

  it("are refused on demand when their id is another tool's, given or not", () => {
    const onDemand = registerTool("shell", { onDemand: true, description: "s", inputSchema: {} }, { kind: "host" });
    expect(() => new ToolRegistry([tool("shell"), onDemand])).toThrow(
      expect.objectContaining({ code: "duplicate_tool", message: expect.stringContaining("have the id shell") }),
    );
  });

  it("have their schema checked on demand as well", () => {
    const broken = registerTool(
      "x",
      { id: "x", onDemand: true, description: "x", inputSchema: { type: "objekt" } },
      { kind: "host" },
    );
    expect(() => new ToolRegistry([broken])).toThrow(expect.objectContaining({ code: "invalid_tool_schema" }));
  });
});
