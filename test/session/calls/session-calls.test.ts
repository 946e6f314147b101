import { expect, it } from "vitest";
import { SESSION_CALLS } from "../../../src/session/calls/session-calls.js";

it("calls that change a session or wait for its turns keep their place among the turns; the others go past them", () => {
  const by = (route: string) =>
    Object.entries(SESSION_CALLS).flatMap(([method, call]) => (call.route === route ? [method] : []));
  expect(by("lane")).toEqual([
    "setConfig",
    "refreshTools",
    "compact",
    "append",
    "extend",
    "hostCall",
    "addInput",
    "inputs",
    "cancelInput",
    "park",
    "handOver",
    "operate",
    "cancelWork",
  ]);
  expect(by("control")).toEqual([
    "open",
    "info",
    "capture",
    "adopt",
    "view",
    "messages",
    "tree",
    "spending",
    "resume",
    "setBudget",
    "surface",
    "completeTool",
    "observe",
    "unobserve",
    "releaseIdle",
    "takeOver",
    "release",
    "discard",
  ]);
});
