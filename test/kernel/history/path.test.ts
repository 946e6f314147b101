import fc from "fast-check";
import { expect, test } from "vitest";
import {
  historyDamaged,
  isOnPath,
  nodeId,
  type OutlineOf,
  pathTo,
  type SegmentOutline,
  treeOf,
} from "../../../src/kernel/index.js";

const outlines =
  (...known: readonly SegmentOutline[]): OutlineOf =>
  (id) => {
    const found = known.find((outline) => outline.id === id);
    if (found === undefined) throw historyDamaged(id, "it is missing");
    return found;
  };

// a@1: 0 1 2 → a@2: 0 1
//        └→ b@1: 0 1
const graph = outlines(
  { id: "a@1", parent: null, count: 3 },
  { id: "a@2", parent: "a@1.2", count: 2 },
  { id: "b@1", parent: "a@1.1", count: 2 },
);

/** From the root, oldest first. */
const nodesTo = (outlineOf: OutlineOf, leaf: string | null) =>
  [...pathTo(outlineOf, leaf)]
    .reverse()
    .flatMap(({ outline, index }) => Array.from({ length: index + 1 }, (_, i) => nodeId(outline.id, i)));

// state §2.3: message tree with active flags
test("a tree has every node once, behind its parent, and says which are active", () => {
  expect(treeOf(graph, { active: "b@1.0", others: ["a@2.1", "b@1.1", null, "b@1.0"] })).toEqual([
    { node: "a@1.0", parent: null, active: true },
    { node: "a@1.1", parent: "a@1.0", active: true },
    { node: "b@1.0", parent: "a@1.1", active: true },
    { node: "a@1.2", parent: "a@1.1", active: false },
    { node: "a@2.0", parent: "a@1.2", active: false },
    { node: "a@2.1", parent: "a@2.0", active: false },
    { node: "b@1.1", parent: "b@1.0", active: false },
  ]);
});

// quality §3.3 K: parent cycle, dangling leaf, orphan refused
test.each<[string, OutlineOf, string]>([
  [
    "a ring of two",
    outlines({ id: "a@1", parent: "a@2.0", count: 1 }, { id: "a@2", parent: "a@1.0", count: 1 }),
    "a@2.0",
  ],
  ["its own ancestor", outlines({ id: "a@1", parent: "a@1.0", count: 1 }), "a@1.0"],
  ["a missing parent", outlines({ id: "a@2", parent: "a@1.0", count: 1 }), "a@2.0"],
  [
    "a parent beyond its segment",
    outlines({ id: "a@1", parent: null, count: 1 }, { id: "a@2", parent: "a@1.1", count: 1 }),
    "a@2.0",
  ],
  ["a leaf beyond its segment", graph, "a@2.2"],
  ["a leaf without an index", graph, "a@2."],
  ["a leaf with an odd index", graph, "a@2.00"],
  ["no node at all", graph, ""],
])("a history with %s is history_damaged and nothing hangs", (_, damaged, leaf) => {
  const refused = expect.objectContaining({ code: "history_damaged" });
  expect(() => nodesTo(damaged, leaf)).toThrow(refused);
  expect(() => isOnPath(damaged, leaf, "elsewhere@1.0")).toThrow(refused);
  expect(() => treeOf(damaged, { active: leaf, others: [] })).toThrow(refused);
});

test("on any graph: a node is on the path exactly when it is among the nodes from the root", () => {
  // Each segment continues some node of an earlier one, or begins anew.
  const shape = fc.array(fc.record({ count: fc.integer({ min: 1, max: 4 }), at: fc.nat(), fresh: fc.boolean() }), {
    minLength: 1,
    maxLength: 8,
  });
  fc.assert(
    fc.property(shape, fc.nat(), (segments, leafAt) => {
      const known: SegmentOutline[] = [];
      const nodes: string[] = [];
      for (const [i, { count, at, fresh }] of segments.entries()) {
        const parent = nodes.length === 0 || fresh ? null : (nodes[at % nodes.length] as string);
        known.push({ id: `s@${i}`, parent, count });
        for (let index = 0; index < count; index++) nodes.push(nodeId(`s@${i}`, index));
      }
      const lookup = outlines(...known);
      const leaf = nodes[leafAt % nodes.length] as string;
      const path = nodesTo(lookup, leaf);
      for (const node of nodes) expect(isOnPath(lookup, leaf, node)).toBe(path.includes(node));
    }),
  );
});
