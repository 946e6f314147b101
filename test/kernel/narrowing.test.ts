import { describe, expect, test } from "vitest";
import { narrowingProblem } from "../../src/kernel/index.js";

const shell = { name: "shell", description: "d", inputSchema: { type: "object" } };

describe("how a child is to be narrowed", () => {
  test.each([
    ["nothing", {}],
    ["empty lists", { authority: { hiddenTools: [], withoutPlugins: [], tools: [] }, catalog: { remove: [] } }],
    [
      "everything",
      { authority: { hiddenTools: ["a"], withoutPlugins: ["p"], tools: [shell] }, catalog: { remove: ["b"] } },
    ],
  ])("can be said with %s", (_what, request) => {
    expect(narrowingProblem(request)).toBeUndefined();
  });

  test.each([
    ["a name instead of a list", { authority: { hiddenTools: "shell" } }, "authority.hiddenTools"],
    ["no names", { authority: { hiddenTools: [7] } }, "authority.hiddenTools"],
    ["a plugin instead of a list", { authority: { withoutPlugins: "guard" } }, "authority.withoutPlugins"],
    ["names instead of definitions", { authority: { tools: ["shell"] } }, "authority.tools"],
    ["an overlay that removes nothing it names", { catalog: {} }, "catalog.remove"],
    ["an overlay with a name instead of a list", { catalog: { remove: "shell" } }, "catalog.remove"],
  ])("cannot be said with %s: it would narrow nothing", (_what, request, where) => {
    expect(narrowingProblem(request as never)).toMatch(new RegExp(`^${where} must be a list of `));
  });
});
