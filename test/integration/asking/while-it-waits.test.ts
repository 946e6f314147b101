import { pendingTool, scriptedModel, type Troupe } from "troupe";
import { expect, test } from "vitest";
import { EMPTY_OBJECT, startTroupe, until } from "../../support/runtime.js";

const pays = Array.from({ length: 2 }, () => [{ toolCalls: [{ tool: "pay" }] }, { text: "{tool_result}" }]);
const model = scriptedModel({ turns: pays });
const pay = { description: "Pays.", inputSchema: EMPTY_OBJECT, approval: true as const, execute: () => "paid" };

/** The keys of the calls that wait, by session, when there are so many. */
async function keys(troupe: Troupe, count: number): Promise<Readonly<Record<string, string>>> {
  await until(`${count} wait`, async () => (await troupe.pending()).calls.length === count);
  return Object.fromEntries((await troupe.pending()).calls.map(({ sessionId, key }) => [sessionId, key]));
}

test("a call that waits for a yes holds no place of a tool that runs once at a time", async () => {
  const troupe = await startTroupe({ sessionWorkers: 1, model, tools: { pay: { ...pay, maxConcurrent: 1 } } });
  const [first, second] = await Promise.all(["first", "second"].map((id) => troupe.session(id)));
  const turns = [first?.turn("Pay."), second?.turn("Pay.")];
  const asked = await keys(troupe, 2);
  await troupe.approve(asked.second ?? "");
  expect((await turns[1])?.text).toBe("paid");
  await troupe.approve(asked.first ?? "");
  expect((await turns[0])?.text).toBe("paid");
});

test("a tool that runs behind a yes and then says that its result comes later waits under another key", async () => {
  const later = { ...pay, execute: () => pendingTool({ announcement: { kind: "client_tool" } }) };
  const troupe = await startTroupe({ sessionWorkers: 1, model, tools: { pay: later } });
  const turn = (await troupe.session("s")).turn("Pay.");
  const approval = (await keys(troupe, 1)).s ?? "";
  expect(await troupe.approve(approval)).toBe("counted");
  await until("its result is waited for", async () => (await keys(troupe, 1)).s !== approval);
  const [call] = (await troupe.pending()).calls;
  expect(call?.announcement).toEqual({ kind: "client_tool" });
  expect(await troupe.approve(approval)).toBe("already_answered");
  await troupe.completeTool(call?.key ?? "", { value: "paid elsewhere" });
  expect((await turn).text).toBe("paid elsewhere");
});
