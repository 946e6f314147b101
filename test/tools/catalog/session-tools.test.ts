import { describe, expect, it } from "vitest";
import { systemClock } from "../../../src/async/index.js";
import { setToolAvailability, setToolMembership, type ToolState, toolStateOf } from "../../../src/kernel/index.js";
import { executeTool, SessionTools, ToolRegistry } from "../../../src/tools/index.js";
import { Deadlines } from "../../../src/wire/index.js";
import { names, onDemand, registryOf, tool } from "../registered.js";

const fails = (code: string, details?: Record<string, unknown>) =>
  expect.objectContaining({ code, ...(details && { details }) });

describe("the tools of a session that changed nothing", () => {
  // turn §8.69
  it("are those of its registry, by the very same array", () => {
    const base = registryOf("b", "a");
    const tools = new SessionTools(base);
    expect(names(tools.specs())).toEqual(["a", "b"]);
    expect(tools.specs()).toBe(base.specs(new Set()));
    expect(tools.get("a")).toBe(base.get("a"));
  });

  it("keep their array, though the registry keeps only so many", () => {
    const many = Array.from({ length: 300 }, (_, n) => `t${n}`);
    const base = registryOf("a", "b", ...many);
    const tools = new SessionTools(base, { hidden: ["a"] });
    const specs = tools.specs();
    for (const name of many) new SessionTools(base, { hidden: [name] }).specs();
    expect(tools.specs()).toBe(specs);
  });

  it("share their catalog with every other such session", () => {
    const base = registryOf("a");
    expect(new SessionTools(base).catalog()).toBe(new SessionTools(base).catalog());
    const hidden = ["a"];
    expect(new SessionTools(base, { hidden }).catalog()).toBe(new SessionTools(base, { hidden }).catalog());
  });

  it("have generation 1 and nothing to store", () => {
    const tools = new SessionTools(registryOf("a"), { hidden: ["a"] });
    expect([tools.generation, tools.orphans]).toEqual([1, []]);
  });

  it("do not change with those of another session", () => {
    const base = registryOf("a", "b");
    const [one, other] = [new SessionTools(base), new SessionTools(base)];
    one.setMembership(["a"], false);
    expect(names(other.specs())).toEqual(["a", "b"]);
    expect(other.get("a")).toBeDefined();
  });
});

describe("hidden tools", () => {
  it("cannot be found, listed, searched, exported or named", () => {
    const tools = new SessionTools(registryOf("a", "shell"), { hidden: ["shell", "nothing"] });
    expect(tools.get("shell")).toBeUndefined();
    expect(tools.whyNot("shell")).toBe("unknown");
    expect(names(tools.specs())).toEqual(["a"]);
    expect(names(tools.catalog())).toEqual(["a"]);
    expect(Object.keys(tools.exportState().tools)).toEqual(["a"]);
    expect(() => tools.setMembership(["shell"], true)).toThrow(fails("tool_unknown"));
  });

  it("share the catalog of the registry for the same hidden names", () => {
    const base = registryOf("a", "shell");
    expect(new SessionTools(base, { hidden: ["shell"] }).specs()).toBe(base.specs(new Set(["shell"])));
  });

  // turn §8.72
  it("stay hidden when a state says they are members", () => {
    const base = registryOf("a", "shell");
    const parent = new SessionTools(base).exportState();
    const child = new SessionTools(base, { hidden: ["shell"] });
    child.applyState(parent);
    expect(child.get("shell")).toBeUndefined();
    child.restoreState(parent);
    expect(child.get("shell")).toBeUndefined();
  });

  // turn §8.72
  it("stay hidden when their source comes later", () => {
    const tools = new SessionTools(registryOf("a"), { hidden: ["shell"] });
    tools.rebind(registryOf("a", "shell"));
    expect(tools.get("shell")).toBeUndefined();
    expect(names(tools.specs())).toEqual(["a"]);
  });

  it("are not undone by changing the names that were given", () => {
    const hidden = new Set(["a"]);
    const tools = new SessionTools(registryOf("a"), { hidden });
    hidden.clear();
    expect(tools.get("a")).toBeUndefined();
  });
});

describe("an exported state", () => {
  it("has members, what is none, and orphans, in the order of their ids", () => {
    const tools = new SessionTools(registryOf("b", tool("a", { id: "z" }), "gone"));
    tools.rebind(registryOf("b", tool("a", { id: "z" })));
    tools.setMembership(["b"], false);
    const inputSchema = { type: "object" };
    expect(tools.exportState()).toEqual({
      generation: 3,
      tools: {
        b: { spec: { name: "b", description: "b.", inputSchema }, member: false, orphaned: false },
        gone: { spec: { name: "gone", description: "gone.", inputSchema }, member: true, orphaned: true },
        z: { spec: { id: "z", name: "a", description: "a.", inputSchema }, member: true, orphaned: false },
      },
    });
    expect(Object.keys(tools.exportState().tools)).toEqual(["b", "gone", "z"]);
  });

  // §15.62
  it("says nothing of where a tool comes from, so that another source can serve it", () => {
    const fromPlugin = tool("a", { home: { kind: "plugin", pluginId: "acme.secret" } });
    const old = new SessionTools(registryOf(fromPlugin));
    old.setMembership(["a"], false);
    const state = old.exportState();
    expect(JSON.stringify(state)).not.toMatch(/acme|plugin|home/);

    const tools = new SessionTools(registryOf(tool("a", { home: { kind: "pool", module: "file:///a.js" } })), {
      state,
    });
    expect(tools.orphans).toEqual([]);
    expect(tools.whyNot("a")).toBe("unavailable");
    tools.setMembership(["a"], true);
    expect(tools.get("a")?.home).toEqual({ kind: "pool", module: "file:///a.js" });
  });

  it("leaves out tools on demand", () => {
    const tools = new SessionTools(registryOf("a", onDemand("a", "acme.a")));
    expect(Object.keys(tools.exportState().tools)).toEqual(["a"]);
  });

  it("does not change with the session", () => {
    const tools = new SessionTools(registryOf("a"));
    const state = tools.exportState();
    tools.setMembership(["a"], false);
    expect([state.generation, state.tools.a?.member]).toEqual([1, true]);
  });
});

describe("applying a state", () => {
  // §15.61
  it("puts its memberships in force, one generation further", () => {
    const tools = new SessionTools(registryOf("a", "b"));
    expect(tools.applyState(setToolMembership(tools.exportState(), ["a"], false))).toBe(2);
    expect(tools.generation).toBe(2);
    expect(tools.get("a")).toBeUndefined();
    expect(tools.whyNot("a")).toBe("unavailable");
    expect(names(tools.specs())).toEqual(["b"]);
  });

  // §15.61 turn §8.71
  it("that is stale fails before anything else is looked at, and changes nothing", () => {
    const tools = new SessionTools(registryOf("a"));
    const state = tools.exportState();
    tools.setMembership(["a"], false);
    const broken = { ...state, tools: { "": null } } as unknown as ToolState;
    for (const late of [state, broken]) {
      expect(() => tools.applyState(late)).toThrow(fails("tool_state_stale", { expected: 2, actual: 1 }));
    }
    expect([tools.generation, tools.whyNot("a")]).toEqual([2, "unavailable"]);
  });

  it("from the future fails as well", () => {
    const tools = new SessionTools(registryOf("a"));
    expect(() => tools.applyState({ ...tools.exportState(), generation: 2 })).toThrow(
      fails("tool_state_stale", { expected: 1, actual: 2 }),
    );
  });

  it("that is invalid fails and changes nothing", () => {
    const tools = new SessionTools(registryOf("a"));
    const { tools: entries } = tools.exportState();
    const broken = { generation: 1, tools: { b: entries.a } } as unknown as ToolState;
    expect(() => tools.applyState(broken)).toThrow(fails("tool_state_invalid"));
    expect(tools.generation).toBe(1);
  });

  // §15.63 turn §8.71
  it("that names a tool nobody has fails and changes nothing", () => {
    const tools = new SessionTools(registryOf("a"));
    const other = setToolMembership(new SessionTools(registryOf("a", "x", "y")).exportState(), ["a"], false);
    expect(() => tools.applyState(other)).toThrow(fails("tool_unknown", { toolIds: ["x", "y"] }));
    expect([tools.generation, tools.whyNot("a")]).toEqual([1, undefined]);
  });

  it("that names a tool on demand fails", () => {
    const state = new SessionTools(registryOf(tool("a", { id: "acme.a" }))).exportState();
    const tools = new SessionTools(registryOf(onDemand("a", "acme.a")));
    expect(() => tools.applyState(state)).toThrow(fails("tool_unknown"));
  });

  // §15.63
  it("goes round while there are orphans", () => {
    const tools = new SessionTools(registryOf("a", "gone"));
    tools.rebind(registryOf("a"));
    expect(tools.applyState(tools.exportState())).toBe(3);
    expect(tools.orphans).toEqual(["gone"]);
  });

  it("binds a tool that is marked as orphaned but live", () => {
    const tools = new SessionTools(registryOf("a", "b"));
    const [a, b] = Object.values(tools.exportState().tools).map((entry) => ({ ...entry, orphaned: true }));
    if (a === undefined || b === undefined) return expect.unreachable();
    tools.applyState(toolStateOf(1, [a, { ...b, member: false }]));
    expect(tools.orphans).toEqual([]);
    expect(names(tools.specs())).toEqual(["a"]);
  });

  it("forgets orphans it does not name, and leaves live tools it does not name as members", () => {
    const tools = new SessionTools(registryOf("a", "gone"));
    tools.rebind(registryOf("a"));
    tools.setMembership(["a"], false);
    tools.applyState({ generation: 3, tools: {} });
    expect(tools.orphans).toEqual([]);
    expect(names(tools.specs())).toEqual(["a"]);
  });

  it("does not take a spec from it: the live one wins", () => {
    const tools = new SessionTools(registryOf(tool("a", { description: "live" })));
    const state = new SessionTools(registryOf(tool("a", { description: "stored" }))).exportState();
    tools.applyState(setToolAvailability(state, ["a"], "callable"));
    expect(tools.specs()[0]?.description).toBe("live");
    expect(tools.exportState().tools.a?.spec.description).toBe("live");
  });
});

describe("setting tools by name", () => {
  it("is one generation for all of them", () => {
    const tools = new SessionTools(registryOf("a", "b", "c"));
    expect(tools.setMembership(["a", "b"], false)).toBe(2);
    expect(tools.setAvailability(["b", "c"], "callable")).toBe(3);
    expect(names(tools.specs())).toEqual(["b", "c"]);
  });

  it("refuses an unknown name and changes nothing", () => {
    const tools = new SessionTools(registryOf("a"));
    expect(() => tools.setMembership(["a", "x"], false)).toThrow(fails("tool_unknown", { names: ["x"] }));
    expect(() => tools.setAvailability(["a", "x"], "off")).toThrow(fails("tool_unknown", { names: ["x"] }));
    expect([tools.generation, names(tools.specs())]).toEqual([1, ["a"]]);
  });

  it("lists what can be called, and catalogs what can be found", () => {
    const tools = new SessionTools(registryOf("a", "b", "c", tool("d", { id: "acme.d" })));
    tools.setAvailability(["a"], "off");
    tools.setAvailability(["b"], "searchable");
    tools.setAvailability(["c"], "callable");
    expect(names(tools.specs())).toEqual(["c", "d"]);
    expect([tools.whyNot("a"), tools.whyNot("b"), tools.whyNot("c")]).toEqual([
      "unavailable",
      "unavailable",
      undefined,
    ]);
    const inputSchema = { type: "object" };
    expect(tools.catalog()).toEqual([
      { id: "b", name: "b", description: "b.", inputSchema, availability: "searchable" },
      { id: "c", name: "c", description: "c.", inputSchema, availability: "callable" },
      { id: "acme.d", name: "d", description: "d.", inputSchema, availability: "showcased" },
    ]);
  });

  it("gives the same arrays until something changes", () => {
    const tools = new SessionTools(registryOf("a", "b"));
    tools.setAvailability(["a"], "callable");
    const [specs, catalog] = [tools.specs(), tools.catalog()];
    expect(tools.specs()).toBe(specs);
    expect(tools.catalog()).toBe(catalog);
    tools.setMembership(["b"], false);
    expect(names(tools.specs())).toEqual(["a"]);
    expect(names(tools.catalog())).toEqual(["a"]);
  });

  it("back to what it was shares the registry's catalog again, at a later generation", () => {
    const base = registryOf("a", "b");
    const tools = new SessionTools(base);
    tools.setAvailability(["a"], "off");
    expect(tools.setAvailability(["a"], null)).toBe(3);
    expect(tools.specs()).toBe(base.specs(new Set()));
  });
});

describe("restoring a state", () => {
  // §15.61
  it("adopts its generation and its memberships", () => {
    const base = registryOf("a", "b");
    const stored = { ...setToolMembership(new SessionTools(base).exportState(), ["b"], false), generation: 3 };
    const tools = new SessionTools(base);
    tools.restoreState(stored);
    expect(tools.orphans).toEqual([]);
    expect(tools.generation).toBe(3);
    expect(names(tools.specs())).toEqual(["a"]);
    expect(tools.applyState(tools.exportState())).toBe(4);
  });

  it("has generation 1 at least", () => {
    const tools = new SessionTools(registryOf("a"));
    tools.restoreState({ generation: 0, tools: {} });
    expect(tools.generation).toBe(1);
  });

  it("is what the constructor does with a state", () => {
    const parent = new SessionTools(registryOf("a", "b"));
    parent.setMembership(["b"], false);
    const child = new SessionTools(registryOf("a"), { state: parent.exportState() });
    expect([child.generation, child.orphans, names(child.specs())]).toEqual([2, ["b"], ["a"]]);
  });

  // §15.65 turn §8.69
  it("gives a fork the edited tools of its parent", () => {
    const base = registryOf("a", "b", "c");
    const parent = new SessionTools(base);
    parent.setMembership(["a"], false);
    parent.setAvailability(["b"], "searchable");
    const child = new SessionTools(base, { state: parent.exportState() });
    expect(child.exportState()).toEqual(parent.exportState());
    expect(names(child.specs())).toEqual(["c"]);
  });

  // §15.65
  it("drops hidden tools before it binds the others, so that a tool of the root alone is no orphan of a fork", () => {
    const root = new SessionTools(registryOf("a", "root_only"));
    root.setMembership(["root_only"], true);
    const child = new SessionTools(registryOf("a"), { hidden: ["root_only"], state: root.exportState() });
    expect(child.orphans).toEqual([]);
    expect(child.whyNot("root_only")).toBe("unknown");
    expect(child.applyState({ ...root.exportState(), generation: child.generation })).toBe(3);
  });

  // §15.63 turn §8.70
  it("keeps what it cannot find as orphans, and says which", () => {
    const old = new SessionTools(registryOf("a", "z", "b"));
    const tools = new SessionTools(registryOf("a"));
    tools.restoreState(old.exportState());
    expect(tools.orphans).toEqual(["b", "z"]);
    expect(tools.get("b")).toBeUndefined();
    expect(tools.whyNot("b")).toBe("orphaned");
    expect(names(tools.specs())).toEqual(["a"]);
    expect(names(tools.catalog())).toEqual(["a"]);
    expect(tools.exportState().tools.b).toMatchObject({ member: true, orphaned: true });
  });

  // turn §8.69
  it("makes members of live tools it does not know", () => {
    const state = new SessionTools(registryOf("a")).exportState();
    const tools = new SessionTools(registryOf("a", "later"), { state });
    expect(names(tools.specs())).toEqual(["a", "later"]);
  });

  // §15.64 turn §8.70 turn §8.74
  it("does not bind a tool of the same name under another id", () => {
    const old = new SessionTools(registryOf(tool("a", { id: "old.a" })));
    old.setMembership(["a"], false);
    const tools = new SessionTools(registryOf(tool("a", { id: "new.a" })), { state: old.exportState() });
    expect(tools.orphans).toEqual(["old.a"]);
    expect(tools.get("a")?.spec.id).toBe("new.a");
    expect(tools.exportState().tools["old.a"]).toMatchObject({ member: false, orphaned: true });
    expect(tools.exportState().tools["new.a"]).toMatchObject({ member: true, orphaned: false });
  });

  // turn §8.74
  it("binds a tool that has another name now, and keeps its membership", () => {
    const old = new SessionTools(registryOf(tool("before", { id: "acme.a" })));
    old.setMembership(["before"], false);
    const tools = new SessionTools(registryOf(tool("after", { id: "acme.a" })), { state: old.exportState() });
    expect(tools.orphans).toEqual([]);
    expect(tools.whyNot("after")).toBe("unavailable");
    expect(tools.exportState().tools["acme.a"]).toMatchObject({ member: false, spec: { name: "after" } });
  });

  it("refuses a broken state and changes nothing", () => {
    const tools = new SessionTools(registryOf("a"));
    tools.setMembership(["a"], false);
    expect(() => tools.restoreState({ generation: -1, tools: {} })).toThrow(fails("tool_state_invalid"));
    expect([tools.generation, tools.whyNot("a")]).toEqual([2, "unavailable"]);
  });

  it("is as cheap as a fresh session when the state says nothing", () => {
    const base = registryOf("a");
    const tools = new SessionTools(base, { state: new SessionTools(base).exportState() });
    expect(tools.specs()).toBe(base.specs(new Set()));
  });

  it("drops what does not belong into an entry", () => {
    const state = toolStateOf(1, [
      Object.assign({ spec: tool("gone").spec, member: true, orphaned: false }, { source: "acme" }),
    ]);
    const tools = new SessionTools(registryOf("a"), { state });
    expect(Object.keys(tools.exportState().tools.gone ?? {})).toEqual(["spec", "member", "orphaned"]);
  });
});

describe("other sources for a session", () => {
  it("orphan the tools that vanished, one generation further", () => {
    const tools = new SessionTools(registryOf("a", "b"));
    tools.rebind(registryOf("a"));
    expect(tools.orphans).toEqual(["b"]);
    expect(tools.generation).toBe(2);
    expect(names(tools.specs())).toEqual(["a"]);
    expect(tools.whyNot("b")).toBe("orphaned");
  });

  // §15.63
  it.each<[boolean, string | undefined]>([
    [true, undefined],
    [false, "unavailable"],
  ])("bring an orphan back with the membership it had: %s", (present, whyNot) => {
    const tools = new SessionTools(registryOf("a", "b"));
    tools.setMembership(["b"], present);
    tools.rebind(registryOf("a"));
    tools.rebind(registryOf("a", "b"));
    expect(tools.orphans).toEqual([]);
    expect(tools.generation).toBe(4);
    expect(tools.whyNot("b")).toBe(whyNot);
  });

  // turn §8.70
  it("bring an orphan back with the availability it had", () => {
    const tools = new SessionTools(registryOf("a"));
    tools.setAvailability(["a"], "searchable");
    tools.rebind(registryOf());
    tools.rebind(registryOf("a"));
    expect(tools.exportState().tools.a?.availability).toBe("searchable");
  });

  // §15.64
  it("do not bring back an orphan by its name alone", () => {
    const tools = new SessionTools(registryOf(tool("a", { id: "old" })));
    tools.rebind(registryOf());
    tools.rebind(registryOf(tool("a", { id: "new" })));
    expect(tools.orphans).toEqual(["old"]);
  });

  it("bring back the tools a restored session missed", () => {
    const old = new SessionTools(registryOf("a", "b"));
    old.setMembership(["b"], false);
    const tools = new SessionTools(registryOf("a"), { state: old.exportState() });
    tools.rebind(registryOf("a", "b"));
    expect([tools.generation, tools.orphans, tools.whyNot("b")]).toEqual([3, [], "unavailable"]);
  });

  // turn §8.69
  it("leave the generation alone when they bring the same tools", () => {
    const tools = new SessionTools(registryOf("a", "b"));
    tools.setMembership(["a"], false);
    const again = registryOf("b", "a");
    tools.rebind(again);
    expect(tools.generation).toBe(2);
    tools.setMembership(["a"], true);
    expect(tools.get("a")).toBe(again.get("a"));
  });

  it("leave everything alone when they are the same ones", () => {
    const base = registryOf("a");
    const tools = new SessionTools(base);
    tools.setAvailability(["a"], "callable");
    const specs = tools.specs();
    tools.rebind(base);
    expect(tools.specs()).toBe(specs);
  });

  it("are a generation further when they bring a new tool or say something else of an old one", () => {
    const tools = new SessionTools(registryOf("a"));
    tools.rebind(registryOf("a", "b"));
    expect([tools.generation, names(tools.specs())]).toEqual([2, ["a", "b"]]);
    tools.rebind(registryOf(tool("a", { description: "better" }), "b"));
    expect([tools.generation, tools.specs()[0]?.description]).toEqual([3, "better"]);
  });

  it("do not orphan a hidden tool", () => {
    const tools = new SessionTools(registryOf("a", "shell"), { hidden: ["shell"] });
    tools.rebind(registryOf("a"));
    expect(tools.orphans).toEqual([]);
    expect(tools.generation).toBe(1);
  });

  // §15.63 turn §8.71
  it("cannot be ambiguous: one id has one tool", () => {
    expect(() => new ToolRegistry([tool("a", { id: "x" }), tool("b", { id: "x" })])).toThrow(fails("duplicate_tool"));
  });
});

describe("a call of a session's tool", () => {
  const call = async (tools: SessionTools, toolName: string) => {
    const home = { run: ({ spec }: { spec: { name: string } }) => `${spec.name} ran` };
    const { output } = await executeTool({
      deadlines: new Deadlines(systemClock),
      registry: tools,
      homes: { host: home, plugin: home, pool: home },
      call: { callId: "c", toolName, args: {} },
      hidden: new Set(),
      sessionId: "s",
      turnId: "t",
      signal: new AbortController().signal,
    });
    return output.status === "failure" ? output.failure : output;
  };

  it("runs a member and refuses all else in the words that fit", async () => {
    const tools = new SessionTools(registryOf("a", "b", "gone", "shell"), { hidden: ["shell"] });
    tools.rebind(registryOf("a", "b", "shell"));
    tools.setMembership(["b"], false);
    const [kind, code] = ["unavailable", "tool_unavailable"];
    expect(await call(tools, "a")).toEqual({ status: "success", value: "a ran" });
    expect(await call(tools, "b")).toEqual({ kind, code, message: "The tool b is not available to this session now." });
    expect(await call(tools, "gone")).toEqual({
      kind,
      code,
      message: "The tool gone cannot run because its source is missing.",
    });
    expect(await call(tools, "shell")).toEqual({ kind, code, message: "There is no tool called shell." });
    expect(await call(tools, "x")).toEqual({ kind, code, message: "There is no tool called x." });
  });
});
