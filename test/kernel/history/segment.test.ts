import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { nodeId, parseNodeId, segmentId } from "../../../src/kernel/index.js";

describe("node ids", () => {
  it.each([
    ["plain", 1, 0, "plain@1.0"],
    ["v1.2", 12, 3, "v1.2@12.3"],
    ["me@home.example", 7, 10, "me@home.example@7.10"],
    ["a@3.1", 2, 5, "a@3.1@2.5"],
    ["....", 1, 1, "....@1.1"],
  ])("of session %j, revision %i, message %i", (sessionId, revision, index, node) => {
    const segment = segmentId(sessionId, revision);
    expect(nodeId(segment, index)).toBe(node);
    expect(parseNodeId(node)).toEqual({ segment, index });
  });

  it("are read back whatever the session is called", () => {
    const sessionId = fc.string({ unit: fc.constantFrom(".", "@", "0", "a"), minLength: 1, maxLength: 12 });
    fc.assert(
      fc.property(sessionId, fc.nat(), fc.nat(), (session, revision, index) => {
        const segment = segmentId(session, revision);
        expect(parseNodeId(nodeId(segment, index))).toEqual({ segment, index });
      }),
    );
  });

  it.each(["a@1", "a@1.", "a@1.x", "a@1.01", "a@1.1e1", "a@1.-1", "a@1. 1", ""])("%j is none", (node) => {
    expect(parseNodeId(node).index).toBeNaN();
  });

  it("of different sessions are different", () => {
    const place = fc.tuple(
      fc.string({ unit: fc.constantFrom(".", "@", "1", "2"), minLength: 1, maxLength: 6 }),
      fc.integer({ min: 1, max: 22 }),
      fc.nat(22),
    );
    const idOf = ([session, revision, index]: [string, number, number]) => nodeId(segmentId(session, revision), index);
    fc.assert(
      fc.property(place, place, (one, other) => {
        fc.pre(JSON.stringify(one) !== JSON.stringify(other));
        expect(idOf(one)).not.toBe(idOf(other));
      }),
    );
  });
});
