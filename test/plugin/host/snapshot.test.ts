import { describe, expect, test } from "vitest";
import { sameMajor, snapshotFingerprint, snapshotIsCurrent } from "../../../src/plugin/index.js";

const budget = { id: "acme.budget", version: "1.0.0", revision: 7n };
const memory = { id: "acme.memory", version: "2.1.0", revision: 300n };

describe("the snapshot fingerprint", () => {
  // Computed with Python's hashlib and struct, from the description alone.
  test("is the seed's, bit for bit", () => {
    expect(snapshotFingerprint([])).toBe(1449310910991872227n);
    expect(snapshotFingerprint([{ id: "a", version: "1", revision: 0n }])).toBe(5704449632108811846n);
    expect(snapshotFingerprint([budget, memory])).toBe(13238057772654496594n);
    expect(snapshotFingerprint([{ id: "ü", version: "1", revision: 2n ** 64n - 1n }])).toBe(15029070544368873193n);
  });

  // §15.59
  test("changes with the order, a version and a revision", () => {
    const base = snapshotFingerprint([budget, memory]);
    expect(snapshotFingerprint([memory, budget])).toBe(11665208165810208956n);
    expect(snapshotFingerprint([{ ...budget, version: "1.0.1" }, memory])).not.toBe(base);
    expect(snapshotFingerprint([{ ...budget, revision: 8n }, memory])).not.toBe(base);
  });
});

describe("a snapshot is current", () => {
  const captured = {
    "acme.budget": { version: "1.0.0", revision: 7n },
    "acme.memory": { version: "2.1.0", revision: 300n },
  };

  // §15.58
  test("when every plugin has an entry of its version and revision, in any order", () => {
    expect(snapshotIsCurrent(captured, [memory, budget])).toBe(true);
  });

  // §15.58
  test.each([
    ["there is none", undefined, [budget, memory]],
    ["a plugin was added", captured, [budget, memory, { id: "new", version: "1", revision: 0n }]],
    ["a plugin was removed", captured, [budget]],
    ["a plugin was renamed", captured, [budget, { ...memory, id: "acme.notes" }]],
    ["a version changed", captured, [budget, { ...memory, version: "2.2.0" }]],
    ["a revision changed", captured, [budget, { ...memory, revision: 301n }]],
  ])("not when %s", (_why, previous, plugins) => {
    expect(snapshotIsCurrent(previous, plugins)).toBe(false);
  });
});

test("state goes from one version to another as it is while the major number stays", () => {
  expect(sameMajor("1.2.3", "1.9.0")).toBe(true);
  expect(sameMajor("1.2.3", "2.0.0")).toBe(false);
});
