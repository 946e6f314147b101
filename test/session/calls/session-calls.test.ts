import { expect, it } from "vitest";
import { SESSION_CALLS } from "../../../src/session/calls/session-calls.js";

it("calls that change a session or wait for its turns keep their place among the turns; the others go past them", () => {
  const by = (route: string) =>
    Object.entries(SESSION_CALLS).flatMap(([method, call]) => (call.route === route ? [method] : []));
  expect(by("lane")).toEqual([
    "setAgent",
    "setConfig",
    "refreshTools",
    "compact",
    "rewind",
    "append",
    "extend",
    "admitChild",
    "hostCall",
    "jobCall",
    "addInput",
    "deliverInput",
    "runTool",
    "inputs",
    "cancelInput",
    "cancelRunning",
    "cancelTurn",
    "answerCall",
    "turnResult",
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
    "observe",
    "unobserve",
    "releaseIdle",
    "takeOver",
    "release",
    "discard",
  ]);
});
