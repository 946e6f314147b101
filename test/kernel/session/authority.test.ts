import { expect, test } from "vitest";
import { isUnlimited, NO_AUTHORITY, narrowAuthority, type ToolSpec } from "../../../src/kernel/index.js";

const anything = () => true;
const tool = (name: string, inputSchema: ToolSpec["inputSchema"] = { type: "object" }): ToolSpec => ({
  name,
  description: "",
  inputSchema,
});
const withTools = (...tools: ToolSpec[]) => ({ authority: { tools }, catalog: { remove: [] } });

test("a child asked for with nothing has what its parent has", () => {
  const parent = { authority: { hiddenTools: ["shell"] }, catalog: { remove: ["mail"] } };
  expect(narrowAuthority(parent, {}, anything)).toEqual(parent);
});

test("a child that keeps nothing from itself under a parent that keeps nothing has nothing to store", () => {
  expect(isUnlimited(narrowAuthority(NO_AUTHORITY, {}, anything))).toBe(true);
  expect(isUnlimited(narrowAuthority(NO_AUTHORITY, { catalog: { remove: ["mail"] } }, anything))).toBe(false);
});

test("hidden tools and plugins to do without add up on the way down", () => {
  const parent = narrowAuthority(
    NO_AUTHORITY,
    { authority: { hiddenTools: ["shell"], withoutPlugins: ["b"] } },
    anything,
  );
  const child = narrowAuthority(parent, { authority: { hiddenTools: ["mail"], withoutPlugins: ["a"] } }, anything);
  expect(child.authority).toEqual({ hiddenTools: ["mail", "shell"], withoutPlugins: ["a", "b"] });
});

test("a child may have fewer of its parent's tools, and no list means no limit of its own", () => {
  const parent = withTools(tool("read"), tool("write"));
  expect(narrowAuthority(parent, { authority: { tools: [tool("read")] } }, anything).authority.tools).toEqual([
    tool("read"),
  ]);
  expect(narrowAuthority(parent, { authority: { tools: [] } }, anything)).toEqual(parent);
});

test("a tool its parent has not, or has with another schema, is refused to a child", () => {
  const parent = withTools(tool("read"));
  for (const stranger of [tool("write"), tool("read", { type: "object", additionalProperties: true })]) {
    expect(() => narrowAuthority(parent, { authority: { tools: [stranger] } }, anything)).toThrow(
      expect.objectContaining({ code: "authority_widened", details: { tool: stranger.name } }),
    );
  }
});

test("a child cannot do without a plugin that must watch over it", () => {
  const guarded = (pluginId: string) => pluginId !== "guard";
  expect(() => narrowAuthority(NO_AUTHORITY, { authority: { withoutPlugins: ["guard"] } }, guarded)).toThrow(
    expect.objectContaining({ code: "plugin_not_droppable", details: { pluginId: "guard" } }),
  );
});

test("a child's plugin options are laid over its parent's, and its catalog overlay replaces the parent's", () => {
  const parent = { authority: { pluginOptions: { a: 1, b: 1 } }, catalog: { remove: ["mail"] } };
  const child = narrowAuthority(parent, { authority: { pluginOptions: { b: 2 } }, catalog: { remove: [] } }, anything);
  expect(child).toEqual({ authority: { pluginOptions: { a: 1, b: 2 } }, catalog: { remove: [] } });
});

test("a subagent's child keeps its capability, and is neither higher up nor reaches deeper", () => {
  const subagent = { capability: "read", depth: 1, maxDepth: 2 };
  const parent = narrowAuthority(NO_AUTHORITY, { authority: { subagent } }, anything);
  const child = (asked: Partial<typeof subagent>) =>
    narrowAuthority(parent, { authority: { subagent: { ...subagent, ...asked } } }, anything).authority.subagent;
  expect(child({ depth: 2 })).toEqual({ capability: "read", depth: 2, maxDepth: 2 });
  expect(narrowAuthority(parent, {}, anything)).toEqual(parent);
  for (const wider of [{ depth: 0 }, { maxDepth: 3 }, { capability: "write" }])
    expect(() => child(wider)).toThrow(expect.objectContaining({ code: "authority_widened" }));
});
