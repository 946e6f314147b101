import { describe, expect, it } from "vitest";
import { type AppendNode, checkNodes, isConversation, messageOfNode, type Origin } from "../../../src/kernel/index.js";

const origin: Origin = { kind: "plugin", pluginId: "p" };
const said = { origin, at: 7 };

describe("messageOfNode", () => {
  it("makes a message of the conversation out of a message", () => {
    const node: AppendNode = { kind: "message", message: { role: "system", text: "You review." } };
    expect(messageOfNode(node, "s@1.0", said)).toEqual({
      id: "s@1.0",
      role: "system",
      parts: [{ type: "text", text: "You review." }],
      origin,
      at: 7,
    });
  });

  it("makes a record out of what a protocol or a plugin leaves for itself", () => {
    expect(
      messageOfNode({ kind: "protocol_event", event: { step: 1 } }, "s@1.1", { origin: { kind: "protocol" }, at: 8 }),
    ).toEqual({
      id: "s@1.1",
      role: "record",
      parts: [],
      origin: { kind: "protocol" },
      at: 8,
      record: { type: "protocol_event", body: { step: 1 } },
    });
    expect(messageOfNode({ kind: "plugin", pluginType: "note", body: null }, "s@1.2", said)).toEqual({
      id: "s@1.2",
      role: "record",
      parts: [],
      origin,
      at: 7,
      record: { type: "note", body: null },
    });
  });

  it("only messages are part of the conversation", () => {
    const nodes: AppendNode[] = [
      { kind: "message", message: { role: "assistant", text: "x" } },
      { kind: "protocol_event", event: 1 },
      { kind: "plugin", pluginType: "note", body: 1 },
    ];
    expect(nodes.map((node) => isConversation(messageOfNode(node, "m", said)))).toEqual([true, false, false]);
  });
});

describe("checkNodes", () => {
  const refusal = (why: string) =>
    expect.objectContaining({ code: "invalid_nodes", message: `These nodes cannot be appended: ${why}.` });
  const MESSAGE = "needs a message with a role (user, system, assistant) and a text";
  const KIND = "must be a message, a protocol_event with its event, or a plugin node with its body";

  it("takes every kind of node, and none", () => {
    const nodes = [
      { kind: "message", message: { role: "user", text: "" } },
      { kind: "protocol_event", event: null },
      { kind: "plugin", pluginType: "note", body: false },
    ];
    expect(checkNodes(nodes)).toBe(nodes);
    expect(checkNodes([])).toEqual([]);
  });

  it.each<[string, unknown, string]>([
    ["what is no list", { kind: "message" }, "they must be a list"],
    ["nothing", undefined, "they must be a list"],
    ["a message without one", [{ kind: "message" }], `node 0 ${MESSAGE}`],
    ["a tool's message", [{ kind: "message", message: { role: "tool", text: "x" } }], `node 0 ${MESSAGE}`],
    ["a message without a text", [{ kind: "message", message: { role: "user" } }], `node 0 ${MESSAGE}`],
    ["an event without one", [{ kind: "protocol_event" }], `node 0 ${KIND}`],
    ["a plugin node without a type", [{ kind: "plugin", body: 1 }], `node 0 ${KIND}`],
    ["a plugin node without a body", [{ kind: "plugin", pluginType: "note" }], `node 0 ${KIND}`],
    ["a kind nobody knows", [{ kind: "protocol_event", event: 1 }, { kind: "tree" }], `node 1 ${KIND}`],
    ["a hole", [null], `node 0 ${KIND}`],
  ])("refuses %s and says which node it is", (_, nodes, why) => {
    expect(() => checkNodes(nodes)).toThrow(refusal(why));
  });
});
