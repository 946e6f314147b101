import { describe, expect, it } from "vitest";
import type { ToolSpec } from "../../../src/kernel/index.js";
import { SessionTools } from "../../../src/tools/index.js";
import { names, onDemand, registryOf, tool } from "../registered.js";

const fails = (code: string, details?: Record<string, unknown>) =>
  expect.objectContaining({ code, ...(details && { details }) });

describe("a context overlay", () => {
  it("adds tools on demand, which are unknown without it", () => {
    const tools = new SessionTools(registryOf("a", onDemand("extra", "acme.extra")));
    expect(tools.whyNot("extra")).toBe("unknown");
    expect(tools.setOverlay({ includeBase: true, toolIds: ["acme.extra"] })).toBe(true);
    expect(names(tools.specs())).toEqual(["a", "extra"]);
    expect(tools.get("extra")?.spec.id).toBe("acme.extra");
    expect(names(tools.catalog())).toEqual(["a", "extra"]);
  });

  it("replaces a tool of the base that has the same name", () => {
    const sandboxed = onDemand("shell", "acme.shell");
    const tools = new SessionTools(registryOf("a", "shell", sandboxed));
    tools.setOverlay({ includeBase: true, toolIds: ["acme.shell"] });
    expect(names(tools.specs())).toEqual(["a", "shell"]);
    expect(tools.get("shell")).toBe(sandboxed);
  });

  it("replaces a tool of the base that has the same id, by being it", () => {
    const base = registryOf("a", "b");
    const tools = new SessionTools(base);
    tools.setOverlay({ includeBase: true, toolIds: ["b"] });
    expect(names(tools.specs())).toEqual(["a", "b"]);
    expect(tools.get("b")).toBe(base.get("b"));
  });

  // §15.66
  it("without the base exposes only its own tools", () => {
    const tools = new SessionTools(registryOf("a", "b", onDemand("extra", "acme.extra")));
    tools.setOverlay({ includeBase: false, toolIds: ["acme.extra", "b"] });
    expect(names(tools.specs())).toEqual(["b", "extra"]);
    expect(names(tools.catalog())).toEqual(["b", "extra"]);
    expect(tools.get("a")).toBeUndefined();
    expect(tools.whyNot("a")).toBe("unavailable");
  });

  it("without the base and without tools exposes nothing", () => {
    const tools = new SessionTools(registryOf("a"));
    expect(tools.setOverlay({ includeBase: false, toolIds: [] })).toBe(true);
    expect(tools.specs()).toEqual([]);
  });

  // §15.66
  it("is a new revision when it differs, also in the order of its tools, and none when it is the same", () => {
    const tools = new SessionTools(registryOf("a", onDemand("x", "x"), onDemand("y", "y")));
    expect(tools.overlayRevision).toBe(0);
    const set = (includeBase: boolean, ...toolIds: string[]) => [
      tools.setOverlay({ includeBase, toolIds }),
      tools.overlayRevision,
    ];
    expect(set(true)).toEqual([false, 0]);
    expect(set(true, "x", "y")).toEqual([true, 1]);
    const specs = tools.specs();
    expect(set(true, "x", "y")).toEqual([false, 1]);
    expect(tools.specs()).toBe(specs);
    expect(set(true, "y", "x")).toEqual([true, 2]);
    expect(set(false, "y", "x")).toEqual([true, 3]);
  });

  it("does not change the state: neither its generation nor what is to be stored", () => {
    const tools = new SessionTools(registryOf("a", onDemand("x", "x")));
    tools.setOverlay({ includeBase: false, toolIds: ["x"] });
    expect([tools.generation, Object.keys(tools.exportState().tools)]).toEqual([1, ["a"]]);
  });

  it("with an unknown id is refused and leaves the one before", () => {
    const tools = new SessionTools(registryOf("a", onDemand("x", "x")));
    tools.setOverlay({ includeBase: false, toolIds: ["x"] });
    const specs = tools.specs();
    expect(() => tools.setOverlay({ includeBase: true, toolIds: ["x", "nothing"] })).toThrow(
      fails("tool_unknown", { toolIds: ["nothing"] }),
    );
    expect(tools.specs()).toBe(specs);
    expect(tools.overlayRevision).toBe(1);
  });

  it("may name a tool twice", () => {
    const tools = new SessionTools(registryOf("a", onDemand("x", "acme.x")));
    tools.setOverlay({ includeBase: true, toolIds: ["acme.x", "acme.x"] });
    expect(names(tools.specs())).toEqual(["a", "x"]);
  });

  it("with two tools of one name is refused", () => {
    const tools = new SessionTools(registryOf(onDemand("x", "one"), onDemand("x", "two")));
    expect(() => tools.setOverlay({ includeBase: true, toolIds: ["one", "two"] })).toThrow(fails("duplicate_tool"));
    expect(tools.overlayRevision).toBe(0);
  });

  // §15.35
  it("cannot bring in a hidden tool, nor one the session switched off", () => {
    const tools = new SessionTools(registryOf("a", "b", onDemand("shell", "acme.shell")), { hidden: ["shell"] });
    tools.setMembership(["a"], false);
    tools.setOverlay({ includeBase: false, toolIds: ["a", "acme.shell"] });
    expect(tools.specs()).toEqual([]);
    expect([tools.whyNot("a"), tools.whyNot("shell")]).toEqual(["unavailable", "unknown"]);
  });

  it("goes away when it is cleared", () => {
    const base = registryOf("a", onDemand("x", "x"));
    const tools = new SessionTools(base);
    tools.setOverlay({ includeBase: false, toolIds: ["x"] });
    expect(tools.setOverlay({ includeBase: true, toolIds: [] })).toBe(true);
    expect(tools.overlayRevision).toBe(2);
    expect(tools.specs()).toBe(base.specs(new Set()));
    expect(tools.setOverlay({ includeBase: true, toolIds: [] })).toBe(false);
    expect(tools.overlayRevision).toBe(2);
  });

  it("does not let what it replaces come back when its own source goes away", () => {
    const sandboxed = onDemand("shell", "acme.shell");
    const tools = new SessionTools(registryOf("shell", sandboxed));
    tools.setOverlay({ includeBase: true, toolIds: ["acme.shell"] });
    tools.rebind(registryOf("shell"));
    expect(tools.get("shell")).toBeUndefined();
    expect(tools.whyNot("shell")).toBe("orphaned");
    expect(tools.specs()).toEqual([]);
    expect(tools.generation).toBe(2);
    tools.rebind(registryOf("shell", sandboxed));
    expect(tools.get("shell")).toBe(sandboxed);
    expect(tools.generation).toBe(3);
  });
});

describe("removals from the catalog", () => {
  it("take tools away from calls and from searches, whatever names they are", () => {
    const tools = new SessionTools(registryOf("a", "b"));
    expect(tools.setRemoved(["b", "nothing"])).toBe(true);
    expect(names(tools.specs())).toEqual(["a"]);
    expect(names(tools.catalog())).toEqual(["a"]);
    expect(tools.get("b")).toBeUndefined();
    expect(tools.whyNot("b")).toBe("unavailable");
  });

  it("take away overlay tools too", () => {
    const tools = new SessionTools(registryOf(onDemand("x", "acme.x")));
    tools.setOverlay({ includeBase: true, toolIds: ["acme.x"] });
    tools.setRemoved(["x"]);
    expect(tools.specs()).toEqual([]);
  });

  it("change nothing when they are the same names in any order", () => {
    const tools = new SessionTools(registryOf("a", "b", "c"));
    tools.setRemoved(["a", "b"]);
    const specs = tools.specs();
    expect(tools.setRemoved(["b", "a", "b"])).toBe(false);
    expect(tools.specs()).toBe(specs);
  });

  // §15.35
  it("can be taken back, hides cannot", () => {
    const base = registryOf("a", "b", "c");
    const tools = new SessionTools(base, { hidden: ["b"] });
    tools.setRemoved(["a", "b"]);
    expect(names(tools.specs())).toEqual(["c"]);
    tools.setRemoved([]);
    expect(names(tools.specs())).toEqual(["a", "c"]);
    expect(tools.specs()).toBe(base.specs(new Set(["b"])));
  });

  it("are no part of the state", () => {
    const tools = new SessionTools(registryOf("a"));
    tools.setRemoved(["a"]);
    expect([tools.generation, tools.exportState().tools.a?.member]).toEqual([1, true]);
  });
});

describe("a tool access with definitions", () => {
  const definition = (name: string, extra: Partial<ToolSpec> = {}): ToolSpec => ({
    name,
    description: `${name}, by authority.`,
    inputSchema: { type: "object", properties: { city: { const: "Berlin" } } },
    ...extra,
  });

  it("shows exactly these, ordered by name, and knows no other tool", () => {
    const access = [definition("b"), definition("a")];
    const tools = new SessionTools(registryOf("a", "b", "c"), { access });
    expect(tools.specs()).toEqual([access[1], access[0]]);
    expect(names(tools.catalog())).toEqual(["a", "b"]);
    expect(tools.get("c")).toBeUndefined();
    expect(tools.whyNot("c")).toBe("unknown");
  });

  it("that is empty is none", () => {
    expect(names(new SessionTools(registryOf("a"), { access: [] }).specs())).toEqual(["a"]);
  });

  it("runs the registered tool of the same id, under the name that its home knows", () => {
    const base = registryOf(tool("weather", { id: "acme.weather" }), "sky");
    const tools = new SessionTools(base, { access: [definition("sky", { id: "acme.weather" })] });
    expect(tools.get("sky")?.spec).toBe(base.get("weather")?.spec);
    expect(tools.get("weather")).toBeUndefined();
  });

  it("runs the registered tool of the same name when none has its id", () => {
    const base = registryOf("weather");
    const tools = new SessionTools(base, { access: [definition("weather", { id: "elsewhere" })] });
    expect(tools.get("weather")?.spec).toBe(base.get("weather")?.spec);
  });

  it("runs a tool on demand that it names by id", () => {
    const tools = new SessionTools(registryOf(onDemand("x", "acme.x")), {
      access: [definition("x", { id: "acme.x" })],
    });
    expect(tools.get("x")?.spec.id).toBe("acme.x");
  });

  it("does not run a tool on demand that the overlay replaces or shuts out", () => {
    const base = registryOf(onDemand("x", "acme.x"), onDemand("x", "other.x"), onDemand("y", "acme.y"));
    const tools = new SessionTools(base, { access: [definition("x", { id: "acme.x" })] });
    tools.setOverlay({ includeBase: true, toolIds: ["other.x"] });
    expect(tools.get("x")?.spec.id).toBe("other.x");
    tools.setOverlay({ includeBase: false, toolIds: ["acme.y"] });
    expect(tools.specs()).toEqual([]);
  });

  it("has arguments checked by its definition as well", () => {
    const access = [definition("a")];
    expect(new SessionTools(registryOf("a"), { access }).get("a")?.shownSchema).toEqual(access[0]?.inputSchema);
  });

  it("shows a definition that nothing runs, and says that its source is missing", () => {
    const tools = new SessionTools(registryOf("a"), { access: [definition("a"), definition("later")] });
    expect(names(tools.specs())).toEqual(["a", "later"]);
    expect(tools.get("later")).toBeUndefined();
    expect(tools.whyNot("later")).toBe("orphaned");
    tools.rebind(registryOf("a", "later"));
    expect(tools.whyNot("later")).toBeUndefined();
  });

  it("is subject to hides, removals and memberships", () => {
    const access = ["a", "b", "c", "d"].map((name) => definition(name));
    const tools = new SessionTools(registryOf("a", "b", "c", "d"), { access, hidden: ["a"] });
    tools.setRemoved(["b"]);
    tools.setMembership(["c"], false);
    expect(names(tools.specs())).toEqual(["d"]);
    expect(["a", "b", "c"].map((name) => tools.whyNot(name))).toEqual(["unknown", "unavailable", "unavailable"]);
  });

  // turn §8.72
  it("gets no tool past a hide under another name", () => {
    const access = [definition("innocent", { id: "shell" })];
    const tools = new SessionTools(registryOf("shell"), { access, hidden: ["shell"] });
    expect(tools.specs()).toEqual([]);
    expect(tools.get("innocent")).toBeUndefined();
    expect(tools.whyNot("innocent")).toBe("unknown");
  });

  it("shows no overlay tool it does not define, and runs the overlay's for one it does", () => {
    const sandboxed = onDemand("shell", "acme.shell");
    const base = registryOf("shell", "a", sandboxed, onDemand("extra", "acme.extra"));
    const tools = new SessionTools(base, { access: [definition("shell"), definition("a")] });
    tools.setOverlay({ includeBase: true, toolIds: ["acme.shell", "acme.extra"] });
    expect(names(tools.specs())).toEqual(["a", "shell"]);
    expect(tools.get("shell")?.spec).toBe(sandboxed.spec);
    tools.setOverlay({ includeBase: false, toolIds: ["acme.shell"] });
    expect(names(tools.specs())).toEqual(["shell"]);
  });

  it.each<[string, string, ToolSpec[]]>([
    ["two definitions of one name", "duplicate_tool", [definition("a"), definition("a", { id: "b" })]],
    ["a bad name", "invalid_tool", [definition("a b")]],
    ["a broken schema", "invalid_tool_schema", [definition("a", { inputSchema: { type: "objekt" } })]],
  ])("refuses %s", (_, code, access) => {
    expect(() => new SessionTools(registryOf("a"), { access })).toThrow(fails(code));
  });
});
