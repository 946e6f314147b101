import { readFile } from "node:fs/promises";
import { join } from "node:path";
import type { Troupe, TroupeOptions } from "troupe";
import { expect, test } from "vitest";
import { heardBy, spawns, withAgents } from "../../support/agents.js";
import { told } from "../../support/asking.js";
import { Elsewhere, journaled } from "../../support/elsewhere.js";
import { gates } from "../../support/journaled.js";
import { fixture, startTroupe, tempFolder, until } from "../../support/runtime.js";

const WORK = told({ call: "ask" }, { say: "42" });

async function stored() {
  const folder = await tempFolder();
  const path = join(folder, "store");
  const file = join(folder, "calls");
  const options = withAgents(
    {},
    {
      store: { path },
      model: new URL(`${fixture("models/told.mjs")}?file=${encodeURIComponent(file)}`),
      tools: { ask: { module: fixture("tools/waits.mjs") } },
    },
  );
  const lines = async () => (await readFile(file, "utf8").catch(() => "")).split("\n").filter(Boolean);
  const agentOf = async () => (await lines()).map((line) => line.split(" ")[0] as string).find((id) => id !== "s");
  return { options, path, lines, agentOf };
}

/** A process in which session "s" does this, killed when its agent's model has answered once. */
async function killedAtWork(args: object) {
  const all = await stored();
  const first = new Elsewhere(all.options as never, { input: told(spawns(args), { say: "on" }) });
  await until("the agent's model is asked", async () => (await all.agentOf()) !== undefined);
  const agent = (await all.agentOf()) as string;
  await journaled(all.path, /^model:0/, agent);
  if ("wait" in args && args.wait === false) await first.says("over");
  await first.kill();
  return { ...all, agent };
}

async function answer(troupe: Troupe) {
  let key = "";
  await until("the agent's call waits", async () => {
    key = (await troupe.pending()).calls[0]?.key ?? "";
    return key !== "";
  });
  await troupe.completeTool(key, { value: "yes" });
}

test("an agent at work when the process is killed goes on, and its answer is told once, over three restarts", async () => {
  const { options, lines, agent } = await killedAtWork({ name: "ada", task: WORK, wait: false });
  const troupe = await startTroupe(options);
  await answer(troupe);
  const session = await troupe.session("s");
  await until("its answer is told", async () => (await session.info()).turns === 2);
  const [, heard] = await heardBy(session);
  expect(heard).toMatch(/^The task .* \(ada\) is done\. Its result:\n42$/);
  expect((await session.tasks()).map(({ state, result }) => [state, result])).toEqual([["completed", "42"]]);
  // What was counted before the crash may be counted again, and nothing is left out.
  expect((await session.spending()).tokens).toBeGreaterThanOrEqual(15 * 5);
  await troupe.close();
  for (let start = 0; start < 3; start++) {
    const again = await startTroupe(options);
    expect(await heardBy(await again.session("s"))).toHaveLength(2);
    await again.close();
  }
  // Two calls of its first turn and one of that which is told, two of the agent: none is made twice.
  expect((await lines()).sort()).toEqual(["s 0", "s 0", "s 1", `${agent} 0`, `${agent} 1`]);
});

test("an agent that is waited for when the process is killed is gone on with, and the turn has its answer", async () => {
  const { options, lines, agent } = await killedAtWork({ name: "ada", task: WORK });
  const troupe = await startTroupe(options);
  await answer(troupe);
  const session = await troupe.session("s");
  await until("the turn is stored", async () => (await session.info()).turns === 1);
  const results = (await session.messages()).flatMap(({ parts }) => parts.filter(({ type }) => type === "tool_result"));
  expect(results).toMatchObject([{ status: "success", text: '{"agent":"ada","answer":"42"}' }]);
  expect((await session.spending()).tokens).toBeGreaterThanOrEqual(15 * 4);
  expect((await troupe.listSessions()).sessions.map(({ id }) => id)).toEqual(["s", agent]);
  expect((await lines()).sort()).toEqual(["s 0", "s 1", `${agent} 0`, `${agent} 1`]);
});

test.each([0, 1])(
  "when session worker %i dies while an agent works and another is waited for, both answers come, once",
  async (sessionWorker) => {
    const gate = gates();
    const options: TroupeOptions = withAgents({}, { store: { path: await tempFolder() } });
    const troupe = await startTroupe({ ...options, tools: { gate: gate.tool("gate"), other: gate.tool("other") } });
    const session = await troupe.session("s");
    const working = spawns({ name: "ada", task: told({ call: "gate" }, { say: "42" }), wait: false });
    const awaited = spawns({ name: "bob", task: told({ call: "other" }, { say: "43" }) });
    const turn = session.turn(told(working, awaited, { say: "done" }));
    await until("both work", () => gate.calls.length === 2);
    await troupe.kill({ sessionWorker });
    // What ran there is run again, and the answer of its first run is nobody's.
    await until("both have answered", async () => {
      for (const name of ["gate", "other"]) gate.open(name);
      return (await heardBy(session)).length === 2 && (await session.view()).running === null;
    });
    const { toolCalls } = await turn;
    expect(toolCalls[1]?.output).toMatchObject({ status: "success", value: { agent: "bob", answer: "43" } });
    expect((await heardBy(session)).slice(1)).toEqual([expect.stringMatching(/\(ada\) is done\. Its result:\n42$/)]);
    expect((await troupe.listSessions()).sessions).toHaveLength(3);
  },
);
