import { describe, expect, it } from "vitest";
import {
  type CachePolicy,
  cacheMarks,
  checkCachePolicy,
  type Message,
  type ModelRequest,
} from "../../../src/kernel/index.js";

const said = (id: string, role: Message["role"]): Message => ({ id, role, parts: [{ type: "text", text: id }] });
const TOOL = { name: "weather", description: "", inputSchema: {} };
/** Two turns with a tool call each, and the input of a third. */
const history = ["user", "assistant", "tool", "assistant"].flatMap((role, index) => [
  said(`t1.${index}`, role as "user"),
]);
const second = ["user", "assistant", "tool", "assistant"].map((role, index) => said(`t2.${index}`, role as "user"));
const request: ModelRequest = {
  sessionId: "s",
  turnId: "t3",
  step: 0,
  system: "Be kind.",
  history: [...history, ...second],
  turn: [said("t3.0", "user")],
  tools: [TOOL],
};
const marked = (policy: Exclude<CachePolicy, "off">, changes: Partial<ModelRequest> = {}) => {
  const { messages, ...others } = cacheMarks({ ...request, ...changes }, { policy, key: "k", stable: 1 });
  return [...Object.keys(others), ...[...messages.keys()].map(({ id }) => id)];
};

describe("the marks of a request", () => {
  it("are by themselves at the system text, the end of the last request, and the end of this one", () => {
    expect(marked("auto")).toEqual(["system", "t2.2", "t3.0"]);
  });

  it("stand before what changes every turn, where this turn and the one before have it", () => {
    const turn = [said("t3.0", "user"), said("t3.volatile.0", "user")];
    expect(marked("auto", { turn })).toEqual(["system", "t2.0", "t3.0", "t3.volatile.0"]);
    const later = [...turn, said("t3.1", "assistant"), said("t3.2", "tool")];
    expect(marked("auto", { turn: later })).toEqual(["system", "t2.0", "t3.0", "t3.2"]);
  });

  it("follow everything that the turn before was asked, and look past what a host appended", () => {
    const turn = [said("t3.0", "user"), said("t3.volatile.0", "user")];
    const enqueued = [said("t2.0", "user"), said("t2.1", "user"), said("t2.2", "assistant"), said("s@9.0", "user")];
    expect(marked("auto", { turn, history: enqueued })[1]).toBe("t2.1");
  });

  it("cover what a fork reads again of its parent's last turn", () => {
    const turn = [said("t3.0", "user"), said("t3.volatile.0", "user")];
    const [asked, ...answered] = second;
    const read = [...history, asked as Message, said("t2.volatile.0", "user"), ...answered];
    expect(marked("auto", { turn, history: read })).toEqual(["system", "t2.volatile.0", "t3.0", "t3.volatile.0"]);
  });

  it("are at the tools when there is no system text, and nowhere in what is not there", () => {
    expect(marked("auto", { system: "" })).toEqual(["tools", "t2.2", "t3.0"]);
    expect(marked("auto", { system: "", tools: [], history: [] })).toEqual(["t3.0"]);
  });

  it("are exactly at the points that were asked for", () => {
    expect(marked(["tools", "end"])).toEqual(["tools", "t3.0"]);
    const { system } = cacheMarks(request, { policy: [{ at: "system", ttl: "1h" }], key: "k", stable: 1 });
    expect(system).toEqual({ ttl: "1h" });
  });

  it("are four at most", () => {
    for (const turn of [request.turn, [said("t3.0", "user"), said("t3.volatile.0", "user"), said("t3.1", "assistant")]])
      expect(marked("auto", { turn }).length).toBeLessThanOrEqual(4);
  });
});

describe("a cache policy", () => {
  it("is auto, off or a list of points", () => {
    for (const policy of ["auto", "off", [], ["system", { at: "end", ttl: "1h" }]])
      expect(checkCachePolicy(policy)).toBe(policy);
  });

  it("that is none is refused with what it can be", () => {
    const refusal = (why: string) =>
      expect.objectContaining({ code: "invalid_cache_policy", message: expect.stringContaining(why) });
    expect(() => checkCachePolicy(true)).toThrow(refusal('it is "auto", "off" or a list of points'));
    expect(() => checkCachePolicy(["sytem"])).toThrow(
      refusal('a request has no point "sytem". Did you mean "system"?'),
    );
    expect(() => checkCachePolicy([7])).toThrow(refusal("a point is one of tools, system, previous, input, end"));
    expect(() => checkCachePolicy([{ at: "end", ttl: "2h" }])).toThrow(
      refusal('the ttl of a point is "5m" or "1h", not "2h"'),
    );
    expect(() => checkCachePolicy([{ at: "end", tll: "1h" }])).toThrow(
      refusal('a point has no field "tll". Did you mean "ttl"?'),
    );
    expect(() => checkCachePolicy(["tools", "system", "previous", "input", "end"])).toThrow(
      refusal("4 points at most, not 5"),
    );
  });
});
