import { describe, expect, it } from "vitest";
import { ACTIVITY_TYPES, ACTIVITY_VERSION } from "../../../src/kernel/index.js";
import { SHAPES } from "./activity-shapes.js";

// turn §8.94
describe("the shape of activities", () => {
  it("is of version 1", () => {
    expect(ACTIVITY_VERSION).toBe(1);
  });

  it("is pinned for every type there is, and there are these", () => {
    expect([...ACTIVITY_TYPES].sort()).toEqual(Object.keys(SHAPES).sort());
  });

  const all = ACTIVITY_TYPES.flatMap((type) =>
    SHAPES[type].map(([activity, json], n) => ({ type, n, activity, json })),
  );

  it.each(all)("of $type ($n) is this JSON, and nothing of it is lost as JSON", ({ activity, json }) => {
    expect(JSON.stringify(activity)).toBe(json);
    expect(JSON.parse(json)).toStrictEqual(activity);
  });
});
