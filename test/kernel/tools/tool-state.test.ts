import { describe, expect, it } from "vitest";
import {
  checkToolState,
  isToolAtLeast,
  setToolAvailability,
  setToolMembership,
  type ToolAvailability,
  type ToolSpec,
  type ToolState,
  type ToolStateEntry,
  toolAvailabilityOf,
  toolIdOf,
  toolStateOf,
} from "../../../src/kernel/index.js";

const spec = (name: string, id?: string): ToolSpec => ({
  ...(id !== undefined && { id }),
  name,
  description: name,
  inputSchema: { type: "object" },
});
const member = (name: string, id?: string): ToolStateEntry => ({
  spec: spec(name, id),
  member: true,
  orphaned: false,
});
const orphan = (name: string, id?: string): ToolStateEntry => ({ ...member(name, id), orphaned: true });

describe("the identity of a tool", () => {
  it("is its id, and its name when it has none", () => {
    expect(toolIdOf(spec("weather", "acme.weather"))).toBe("acme.weather");
    expect(toolIdOf(spec("weather"))).toBe("weather");
  });
});

describe("a tool state", () => {
  it("has its tools by id, in the order of the ids", () => {
    const { generation, tools } = toolStateOf(4, [member("b"), member("a", "z"), member("C")]);
    expect(generation).toBe(4);
    expect(Object.keys(tools)).toEqual(["C", "b", "z"]);
    expect(tools.z).toEqual({
      spec: { id: "z", name: "a", description: "a", inputSchema: { type: "object" } },
      member: true,
      orphaned: false,
    });
  });

  it("is the same after a round trip through JSON", () => {
    const state = toolStateOf(4, [{ ...member("a"), availability: "callable" }, orphan("b")]);
    expect(JSON.parse(JSON.stringify(state))).toEqual(state);
  });

  it("can have a tool called __proto__", () => {
    const state = setToolMembership(toolStateOf(1, [member("__proto__")]), ["__proto__"], false);
    expect(Object.entries(checkToolState(state).tools)).toEqual([
      ["__proto__", { ...member("__proto__"), member: false }],
    ]);
  });
});

describe("the availability of an entry", () => {
  it.each<[string, Pick<ToolStateEntry, "member" | "orphaned" | "availability">, ToolAvailability]>([
    ["a member is showcased", { member: true, orphaned: false }, "showcased"],
    ["what is no member is off", { member: false, orphaned: false }, "off"],
    ["an availability says it more finely", { member: true, orphaned: false, availability: "callable" }, "callable"],
    ["an orphan is off, whatever it was", { member: true, orphaned: true, availability: "showcased" }, "off"],
  ])("%s", (_, entry, availability) => {
    expect(toolAvailabilityOf(entry)).toBe(availability);
  });

  it("includes every lower step and no higher one", () => {
    const steps: ToolAvailability[] = ["off", "searchable", "callable", "showcased"];
    expect(steps.filter((step) => isToolAtLeast("callable", step))).toEqual(["off", "searchable", "callable"]);
  });
});

describe("setting the membership of tools", () => {
  it("changes only the tools it names, in a copy of the same generation", () => {
    const state = toolStateOf(7, [member("a"), member("b")]);
    const edited = setToolMembership(state, ["a"], false);
    expect(edited).toEqual(toolStateOf(7, [{ ...member("a"), member: false }, member("b")]));
    expect(state).toEqual(toolStateOf(7, [member("a"), member("b")]));
  });

  it("goes by the name of a tool, not by its id", () => {
    const state = toolStateOf(1, [member("weather", "acme.weather")]);
    expect(setToolMembership(state, ["weather"], false).tools["acme.weather"]?.member).toBe(false);
    expect(() => setToolMembership(state, ["acme.weather"], false)).toThrow(
      expect.objectContaining({ code: "tool_unknown" }),
    );
  });

  it("refuses when one name is unknown, and says which", () => {
    const state = toolStateOf(1, [member("a")]);
    expect(() => setToolMembership(state, ["a", "x", "y"], false)).toThrow(
      expect.objectContaining({
        code: "tool_unknown",
        message: "There is no tool called x, y.",
        details: { names: ["x", "y"] },
      }),
    );
    expect(state.tools.a?.member).toBe(true);
  });

  it.each<[ToolAvailability, boolean, Partial<ToolStateEntry>]>([
    ["callable", true, { member: true, availability: "callable" }],
    ["searchable", false, { member: false, availability: "searchable" }],
    ["searchable", true, { member: true }],
    ["showcased", false, { member: false }],
  ])("of a %s tool to %s leaves an availability that agrees and drops another", (availability, present, expected) => {
    const state = setToolAvailability(toolStateOf(1, [member("a")]), ["a"], availability);
    const { spec: _, orphaned: __, ...rest } = setToolMembership(state, ["a"], present).tools.a as ToolStateEntry;
    expect(rest).toEqual(expected);
  });

  it("means the live tool when an orphan has the same name", () => {
    const state = toolStateOf(1, [orphan("a", "old"), member("a", "new")]);
    const { tools } = setToolMembership(state, ["a"], false);
    expect([tools.old?.member, tools.new?.member]).toEqual([true, false]);
  });

  it("of an orphan is what it will have when it returns", () => {
    const { tools } = setToolMembership(toolStateOf(1, [orphan("a")]), ["a"], false);
    expect(tools.a).toEqual({ ...orphan("a"), member: false });
  });
});

describe("setting the availability of tools", () => {
  it.each<[ToolAvailability, boolean]>([
    ["off", false],
    ["searchable", false],
    ["callable", true],
    ["showcased", true],
  ])("to %s makes member %s", (availability, isMember) => {
    const { tools } = setToolAvailability(toolStateOf(1, [member("a")]), ["a"], availability);
    expect(tools.a).toEqual({ ...member("a"), member: isMember, availability });
  });

  it("to null makes a plain member of what was off", () => {
    const off = setToolAvailability(toolStateOf(3, [member("a")]), ["a"], "off");
    expect(setToolAvailability(off, ["a"], null)).toEqual(toolStateOf(3, [member("a")]));
  });

  it("refuses an unknown name", () => {
    expect(() => setToolAvailability(toolStateOf(1, []), ["a"], "off")).toThrow(
      expect.objectContaining({ code: "tool_unknown" }),
    );
  });
});

describe("checking a tool state", () => {
  const of = (entry: unknown, key = "a") => ({ generation: 1, tools: { [key]: entry } });

  it.each<[string, ToolState]>([
    ["nothing", toolStateOf(0, [])],
    ["members and orphans", toolStateOf(3, [member("a"), orphan("b")])],
    ["an orphan with the name of a live tool", toolStateOf(1, [member("a", "new"), orphan("a", "old")])],
    ["two orphans of one name", toolStateOf(1, [orphan("a", "x"), orphan("a", "y")])],
  ])("accepts %s", (_, state) => {
    expect(checkToolState(state)).toBe(state);
  });

  it.each<[string, unknown, string]>([
    ["no object", null, "it must be an object"],
    ["a negative generation", { generation: -1, tools: {} }, "generation must be a non-negative whole number, not -1"],
    ["half a generation", { generation: 0.5, tools: {} }, "generation must be a non-negative whole number, not 0.5"],
    [
      "a generation too large to count from",
      { generation: 2 ** 53, tools: {} },
      "generation must be a non-negative whole number, not 9007199254740992",
    ],
    ["no tools", { generation: 1 }, "tools must be an object"],
    ["an entry without a spec", of({ member: true, orphaned: false }), 'tool "a" must be an entry with a spec'],
    ["an empty name", of(member("", "a")), 'tool "a" has no name'],
    ["an empty id", of(member("a", ""), ""), 'tool "" has an empty id'],
    ["a key that is not the id", of(member("a", "b")), 'tool "a" is filed under another id than its own, "b"'],
    [
      "no schema",
      of({ ...member("a"), spec: { name: "a", description: "a" } }),
      'tool "a" has no description or no schema',
    ],
    [
      "no membership",
      of({ spec: spec("a"), orphaned: false }),
      'tool "a" must say whether it is a member and whether it is orphaned',
    ],
    [
      "an unknown availability",
      of({ ...member("a"), availability: "loud" }),
      'tool "a" has no such availability as "loud"',
    ],
    [
      "a member that cannot be called",
      of({ ...member("a"), availability: "searchable" }),
      'tool "a" contradicts itself: member is true, availability searchable',
    ],
    ["two live tools of one name", toolStateOf(1, [member("a", "x"), member("a", "y")]), "two tools are called a"],
  ])("refuses %s", (_, state, why) => {
    expect(() => checkToolState(state)).toThrow(
      expect.objectContaining({ code: "tool_state_invalid", message: `The tool state is invalid: ${why}.` }),
    );
  });
});
