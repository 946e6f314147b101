import { join } from "node:path";
import { createTroupe, type TroupeOptions } from "troupe";
import type { SubagentsOptions } from "troupe/subagents";
import { expect, test } from "vitest";
import { asks, closes, heardBy, spawns, turnOf, withAgents } from "../../support/agents.js";
import { told } from "../../support/asking.js";
import { pidsIn } from "../../support/background-seams.js";
import { gates } from "../../support/journaled.js";
import { isAlive } from "../../support/pids.js";
import { plugin, startTroupe, tempFolder, until } from "../../support/runtime.js";

const start = (options: SubagentsOptions = {}, more: TroupeOptions = {}) => startTroupe(withAgents(options, more));
const works = (name: string, ...steps: readonly object[]) => spawns({ name, task: told(...steps), wait: false });
const openGate = { call: "gate" };
const task = (name: unknown) => (name as { readonly task: string }).task;

test("a session goes on while its agent works, and is told its answer once, as the beginning of a turn", async () => {
  const gate = gates();
  const troupe = await start({}, { tools: { gate: gate.tool("gate") } });
  const session = await troupe.session("boss");
  const [working] = await turnOf(session, works("ada", openGate, { say: "42" }));
  expect(working).toEqual({
    task: expect.stringMatching(/^troupe\.subagents:agent:call_/),
    label: "ada",
    state: "running",
    note: "It goes on in the background. You are told when it has ended.",
  });
  await until("the agent works", () => gate.calls.length === 1);
  const again = asks("ada", "hello", { wait: false });
  expect(await turnOf(session, { call: "list_agents" }, asks("ada", "hello"), again)).toEqual([
    { agents: [{ name: "ada", state: "working", answers: 0, tokens: 15, task: task(working) }], may_spawn: 7 },
    "subagent_busy",
    "subagent_busy",
  ]);
  gate.open("gate");
  await until("its answer is told", async () => (await session.info()).turns === 3);
  expect((await heardBy(session)).slice(2)).toEqual([`The task ${task(working)} (ada) is done. Its result:\n42`]);
  expect(await turnOf(session, again)).toMatchObject([{ label: "ada", state: "running" }]);
  await until("that answer is told too", async () => (await session.info()).turns === 5);
  // Ten calls of its own, and three of the agent's.
  expect((await session.spending()).tokens).toBe(15 * 13);
});

test("what agents do is in the stream of their session, as deep as they are", async () => {
  const session = await (await start()).session("boss");
  const seen: unknown[] = [];
  const watching = (async () => {
    for await (const { event } of session.observe({ children: true })) {
      if (event.type === "activity" && event.activity.type === "turn_finished" && event.child !== undefined)
        seen.push([event.child.depth, event.activity.result.text]);
      if (event.type === "committed" && event.turnIndex === 2) return;
    }
  })();
  await session.view();
  const deeper = told(spawns({ task: "deepest" }), { say: "deep" });
  await turnOf(session, spawns({ task: deeper, wait: false }));
  await watching;
  expect(seen).toEqual([
    [2, "You said: deepest"],
    [1, "deep"],
  ]);
});

test("closing an agent that works ends its turn, its agents that work, and their turns", async () => {
  const gate = gates();
  const troupe = await start({}, { tools: { gate: gate.tool("gate") } });
  const session = await troupe.session("boss");
  const [working] = await turnOf(
    session,
    works("ada", works("deeper", openGate, { say: "no" }), openGate, { say: "no" }),
  );
  await until("both work", () => gate.calls.length === 2);
  expect(await turnOf(session, closes("ada"), { call: "list_agents" })).toEqual([
    { closed: 2 },
    { agents: [], may_spawn: 8 },
  ]);
  const tasks = await session.tasks();
  expect(tasks.map(({ id, kind, state, label }) => ({ id, kind, state, label }))).toEqual([
    { id: task(working), kind: "subagent", state: "cancelled", label: "ada" },
  ]);
  const { sessions } = await troupe.listSessions();
  const inner = sessions.filter(({ id }) => id !== "boss");
  for (const { id } of inner) expect((await (await troupe.session(id)).view()).running).toBe(null);
  expect((await heardBy(session)).length).toBe(2);
});

test("cancelling the task closes the agent with all that it has, and closing its session does the same", async () => {
  const gate = gates();
  const troupe = await start({}, { tools: { gate: gate.tool("gate") } });
  const session = await troupe.session("boss");
  const [first] = await turnOf(session, works("ada", works("deeper", openGate, { say: "no" }), { say: "idle" }));
  await until("the agent's agent works", () => gate.calls.length === 1);
  await until("the agent has answered", async () => (await session.info()).turns === 2);
  const deepest = async () =>
    (await troupe.listSessions()).sessions.map(({ id }) => id).filter((id) => id.split("/agent:").length === 3);
  const [below = ""] = await deepest();
  const [second] = await turnOf(
    session,
    works("bob", works("under", openGate, { say: "no" }), openGate, { say: "no" }),
  );
  await until("the other and its agent work too", () => gate.calls.length === 3);
  expect(await session.cancelTask(task(second))).toMatchObject({ state: "cancelled" });
  const under = (await deepest()).find((id) => id !== below) as string;
  expect((await (await troupe.session(under)).view()).running).toBe(null);
  expect((await session.tasks()).map(({ label, state }) => [label, state])).toEqual([
    ["ada", "completed"],
    ["bob", "cancelled"],
  ]);
  expect(task(first)).not.toBe(task(second));
  await session.close();
  const left = await troupe.session(below);
  expect([(await left.view()).running, (await left.info()).turns]).toEqual([null, 1]);
});

test("closing a session closes the agents that have worked for it, also those of before a restart: what they have watched ends", async () => {
  const folder = await tempFolder();
  const pids = join(folder, "pids");
  const watched = { id: "run", argv: ["sh", "-c", `echo $$ >> ${pids}; sleep 1000`] };
  const options = withAgents({}, { store: { path: join(folder, "store") } });
  const plugins = [...(options.plugins ?? []), { module: plugin("watches"), permissions: "all" as const }];
  const first = await createTroupe({ ...options, plugins });
  const boss = await first.session("boss");
  await turnOf(
    boss,
    works("ada", { call: "watches_ask", args: { calls: [["startMonitor", watched]] } }, { say: "on" }),
  );
  await until("its answer is told", async () => (await boss.info()).turns === 2);
  await until("its command runs", () => pidsIn(pids).length === 1);
  await first.close();
  const troupe = await startTroupe({ ...options, plugins });
  await until("its command runs again", () => pidsIn(pids).length === 2);
  expect(pidsIn(pids).map(isAlive)).toEqual([false, true]);
  await (await troupe.session("boss")).close();
  expect(pidsIn(pids).map(isAlive)).toEqual([false, false]);
});
