import { join } from "node:path";
import { scriptedModel, type TroupeOptions } from "troupe";
import { expect, test } from "vitest";
import { EMPTY_OBJECT, startTroupe, tempFolder } from "../../support/runtime.js";

const call = (tool: string, extra: object = {}) => ({ tool, callId: "call_0", ...extra });
/** Two calls of one id in an answer, and the same id in the next answer of the turn. */
const model = scriptedModel({
  turns: [[{ toolCalls: [call("one"), call("two")] }, { toolCalls: [call("one")] }, { text: "done" }]],
});

const stores: [string, () => Promise<Pick<TroupeOptions, "store">>][] = [
  ["in memory", async () => ({})],
  ["with a journal", async () => ({ store: { path: join(await tempFolder(), "store") } })],
];

test.each(stores)("calls of a turn that share an id of the provider each run once, %s", async (_, store) => {
  let runs = 0;
  const execute = () => `run ${++runs}`;
  const tool = (description: string) => ({ description, inputSchema: EMPTY_OBJECT, execute });
  const troupe = await startTroupe({ model, ...(await store()), tools: { one: tool("one"), two: tool("two") } });
  const session = await troupe.session("s");
  const { text, issues, toolCalls } = await session.turn("hi");
  expect({ text, issues, runs }).toEqual({ text: "done", issues: [], runs: 3 });
  expect(toolCalls.map(({ output }) => output.status)).toEqual(["success", "success", "success"]);
  // Ours are no other call's; the provider's stand beside them, told apart within the turn, and go back to it.
  for (const { callId } of toolCalls) expect(callId).toMatch(/^call_[0-9a-f]{32}$/);
  expect(new Set(toolCalls.map(({ callId }) => callId)).size).toBe(3);
  const calls = (await session.messages()).flatMap(({ parts }) => parts.filter((part) => part.type === "tool_call"));
  expect(calls).toMatchObject([
    { providerCallId: "call_0" },
    { providerCallId: "call_0_2" },
    { providerCallId: "call_0_3" },
  ]);
  // The model is shown each result under the id of its call.
  const ids = (type: string) =>
    messages.flatMap(({ parts }) =>
      parts.flatMap((part) => (part.type === type ? [(part as { callId: string }).callId] : [])),
    );
  const messages = await session.messages();
  expect(ids("tool_result")).toEqual(ids("tool_call"));
});

test.each(stores)(
  "a call whose arguments are nested 20,000 levels deep fails, and the turn goes on, %s",
  async (_, store) => {
    const argsText = `{"a":${"[".repeat(20_000)}${"]".repeat(20_000)}}`;
    const troupe = await startTroupe({
      model: scriptedModel({ turns: [[{ toolCalls: [call("one", { argsText })] }, { text: "done" }]] }),
      ...(await store()),
      tools: { one: { description: "one", inputSchema: EMPTY_OBJECT, execute: () => "ran" } },
    });
    const { text, toolCalls } = await (await troupe.session("s")).turn("hi");
    expect(text).toBe("done");
    expect(toolCalls).toMatchObject([{ output: { status: "failure", failure: { code: "invalid_tool_args" } } }]);
    expect(JSON.stringify(toolCalls[0]?.output)).toContain("deeper than 100 levels");
  },
);
