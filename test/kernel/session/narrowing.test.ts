import { describe, expect, test } from "vitest";
import { narrowingProblem } from "../../../src/kernel/index.js";

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
    [
      "a name instead of a list",
      { authority: { hiddenTools: "shell" } },
      "authority.hiddenTools must be a list of tool names",
    ],
    ["no names", { authority: { hiddenTools: [7] } }, "authority.hiddenTools must be a list of tool names"],
    [
      "a plugin instead of a list",
      { authority: { withoutPlugins: "guard" } },
      "authority.withoutPlugins must be a list of plugin ids",
    ],
    ["names instead of definitions", { authority: { tools: ["shell"] } }, "authority.tools must be a list of tools"],
    ["an overlay that removes nothing it names", { catalog: {} }, "catalog must be { remove: [tool names] }"],
    [
      "an overlay with a name instead of a list",
      { catalog: { remove: "shell" } },
      "catalog must be { remove: [tool names] }",
    ],
    [
      "a restriction nobody knows",
      { authority: { hiddenTool: ["shell"] } },
      'authority has no field "hiddenTool". Did you mean "hiddenTools"?',
    ],
  ])("cannot be said with %s: it would narrow nothing", (_what, request, problem) => {
    expect(narrowingProblem(request)).toBe(problem);
  });
});
