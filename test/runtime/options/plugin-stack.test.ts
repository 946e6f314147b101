import { describe, expect, test } from "vitest";
import { PluginStack } from "../../../src/runtime/index.js";

const entry = (name: string) => ({ module: `./${name}.js` });
const modulesOf = (stack: PluginStack) => [...stack].map(({ module }) => module);
const abc = () => new PluginStack().extend(["a", "b", "c"].map((name) => [name, entry(name)] as const));

// §15.11
describe("a plugin stack", () => {
  test("gives its entries in the order they were pushed", () => {
    const stack = new PluginStack().push("b", entry("b")).push("a", entry("a"));
    expect(stack.names).toEqual(["b", "a"]);
    expect(modulesOf(stack)).toEqual(["./b.js", "./a.js"]);
    // It can be read as often as somebody likes.
    expect(modulesOf(stack)).toEqual(["./b.js", "./a.js"]);
  });

  test("refuses a name it has already, and stays as it was", () => {
    const stack = abc();
    expect(() => stack.push("b", entry("other"))).toThrow(expect.objectContaining({ code: "duplicate_plugin" }));
    expect(modulesOf(stack)).toEqual(["./a.js", "./b.js", "./c.js"]);
  });

  test("replaces in place, and appends what there was none of", () => {
    expect(modulesOf(abc().replace("b", entry("other")))).toEqual(["./a.js", "./other.js", "./c.js"]);
    const appended = abc().replace("d", entry("d"));
    expect(appended.names).toEqual(["a", "b", "c", "d"]);
    expect(modulesOf(appended)).toEqual(["./a.js", "./b.js", "./c.js", "./d.js"]);
  });

  test("removes by name; what it does not have it cannot lose", () => {
    const stack = abc().remove("b").remove("nothing");
    expect(stack.names).toEqual(["a", "c"]);
    expect([stack.has("a"), stack.has("b")]).toEqual([true, false]);
    // The name is free again, and goes to the end.
    expect(stack.push("b", entry("b")).names).toEqual(["a", "c", "b"]);
  });

  test("retains what is wanted, in its order", () => {
    expect(abc().retain((name, { module }) => name === "c" || module === "./a.js").names).toEqual(["a", "c"]);
  });

  test("changes an entry in its place, and only that one", () => {
    const stack = abc().configure("b", (old) => ({ ...old, options: { max: 1 } }));
    expect([...stack]).toEqual([entry("a"), { module: "./b.js", options: { max: 1 } }, entry("c")]);
    expect([...stack.configure("nothing", () => entry("x"))]).toHaveLength(3);
  });
});
