import type { TroupeOptions } from "troupe";
import { type SubagentsOptions, subagents } from "troupe/subagents";
import { expect, test } from "vitest";
import { asks, closes, spawns, turnOf, withAgents } from "../../support/agents.js";
import { told } from "../../support/asking.js";
import { EMPTY_OBJECT, plugin, startTroupe, until } from "../../support/runtime.js";

const start = (options: SubagentsOptions = {}, more: TroupeOptions = {}) => startTroupe(withAgents(options, more));

test("an agent works on a task in a session of its own and answers, and asked again it knows what was said", async () => {
  const troupe = await start();
  const session = await troupe.session("boss");
  expect(await turnOf(session, spawns({ name: "ada", task: "What is 6 times 7?" }))).toEqual([
    { agent: "ada", answer: "You said: What is 6 times 7?" },
  ]);
  expect(await turnOf(session, asks("ada", told({ say: "@conversation" })))).toEqual([
    {
      agent: "ada",
      answer: JSON.stringify([
        ["user", "What is 6 times 7?"],
        ["assistant", "You said: What is 6 times 7?"],
        ["user", told({ say: "@conversation" })],
      ]),
    },
  ]);
  const { sessions } = await troupe.listSessions();
  const ids = sessions.map(({ id }) => id);
  expect(ids).toEqual(["boss", expect.stringMatching(/^boss\/agent:\w{12}$/)]);
  const agent = await troupe.session(ids[1] as string);
  expect(await agent.info()).toMatchObject({ parent: "boss", turns: 2 });
  expect(await turnOf(session, { call: "list_agents" })).toEqual([
    { agents: [{ name: "ada", state: "idle", answers: 2, tokens: 30 }], may_spawn: 7 },
  ]);
});

test("an agent is watched over by every plugin its session has, and has only the tools it was given", async () => {
  const weather = { description: "The weather", inputSchema: EMPTY_OBJECT, execute: () => "sunny" };
  const clock = { ...weather, description: "The time", execute: () => "noon" };
  const plugins = [{ module: subagents }, { module: plugin("matched-denies") }];
  const watched = await (await start({}, { plugins, tools: { denied: weather } })).session("boss");
  const tries = told({ call: "denied" }, { say: "@conversation" });
  const [heard] = (await turnOf(watched, spawns({ task: tries }))) as [{ answer: string }];
  expect(heard.answer).toContain("Not today.");
  expect(heard.answer).not.toContain("sunny");
  const free = await (await start({}, { tools: { weather, clock } })).session("boss");
  const task = told({ calls: [{ call: "weather" }, { call: "clock" }] }, { say: "@conversation" });
  const [came] = (await turnOf(free, spawns({ task, tools: ["weather"] }))) as [{ answer: string }];
  expect(came.answer).toContain("sunny");
  expect(came.answer).not.toContain("noon");
  expect(await turnOf(free, spawns({ task, tools: ["shell"] }))).toEqual(["tool_unknown"]);
});

test("agents have agents as deep as they may, and where they may not they have no tool for it", async () => {
  const session = await (await start()).session("boss");
  const third = told({ call: "spawn_agent", args: { task: "deeper" } }, { say: "@conversation" });
  const second = told(spawns({ task: third }), { say: "@conversation" });
  const [first] = (await turnOf(session, spawns({ task: second }))) as [{ answer: string }];
  expect(first.answer).toContain("tool_unavailable");
  const shallow = await (await start({ maxDepth: 1 })).session("boss");
  const [only] = (await turnOf(shallow, spawns({ task: third }))) as [{ answer: string }];
  expect(only.answer).toContain("tool_unavailable");
});

test("a session that is an agent already has none of its own where its authority says that it is as deep as may be", async () => {
  const session = await (await start()).session("boss");
  const subagent = { capability: "read", depth: 2, maxDepth: 2 };
  const bottom = await session.fork({ authority: { subagent } });
  expect(await turnOf(bottom, spawns({ task: "deeper" }))).toEqual(["subagent_depth"]);
  const above = await session.fork({ authority: { subagent: { ...subagent, depth: 1 } } });
  expect(await turnOf(above, spawns({ task: "deeper" }))).toEqual([
    { agent: expect.stringMatching(/^agent-\w{6}$/), answer: "You said: deeper" },
  ]);
});

test("a session and its agents have no more agents than they may, however many are spawned at once", async () => {
  const session = await (await start({ maxAgents: 4 })).session("boss");
  const ten = Array.from({ length: 10 }, (_, n) => spawns({ name: `a${n}`, task: "one" }));
  const came = await turnOf(session, { calls: ten });
  expect(came.filter((value) => value === "subagent_limit")).toHaveLength(6);
  expect(came.filter((value) => typeof value === "object")).toHaveLength(4);
  const [{ agents, may_spawn }] = (await turnOf(session, { call: "list_agents" })) as [
    { agents: { name: string }[]; may_spawn: number },
  ];
  expect([agents.length, may_spawn]).toEqual([4, 0]);
  const name = agents[0]?.name as string;
  expect(await turnOf(session, closes(name))).toEqual([{ closed: 1 }]);
  // One of theirs counts too.
  const nested = told({ calls: [spawns({ task: "two" }), spawns({ task: "three" })] }, { say: "@conversation" });
  const [deep] = (await turnOf(session, asks(agents[1]?.name as string, nested))) as [{ answer: string }];
  expect(deep.answer.match(/subagent_limit/g)).toHaveLength(1);
  expect(await turnOf(session, closes(agents[1]?.name as string))).toEqual([{ closed: 2 }]);
  expect(await turnOf(session, asks(name, "again"))).toEqual(["subagent_unknown"]);
});

test("what is wrong in a call is said to the model, and leaves no agent", async () => {
  const troupe = await start({ agents: { helper: "Helps", nobody: "Is not registered" } }, { agents: { helper: {} } });
  const session = await troupe.session("boss");
  const wrong = [
    spawns({ task: "one", name: "ada" }),
    spawns({ task: "two", name: "ada" }),
    spawns({ task: "three", kind: "wizard" }),
    spawns({ task: "four", kind: "nobody" }),
    spawns({ task: "five", kind: "helper", name: "help" }),
    spawns({ task: "", name: "six" }),
    asks("eve", "hello"),
    closes("eve"),
    { call: "list_agents" },
  ];
  expect(await turnOf(session, ...wrong)).toEqual([
    { agent: "ada", answer: "You said: one" },
    "subagent_exists",
    "subagent_unknown",
    "agent_unknown",
    { agent: "help", answer: "You said: five" },
    "invalid_tool_args",
    "subagent_unknown",
    "subagent_unknown",
    {
      agents: [
        { name: "ada", state: "idle", answers: 1, tokens: 15 },
        { name: "help", kind: "helper", state: "idle", answers: 1, tokens: 15 },
      ],
      may_spawn: 6,
      kinds: { helper: "Helps", nobody: "Is not registered" },
    },
  ]);
});

test("an agent that comes to no answer, because the budget is spent, says so to its session", async () => {
  const session = await (await start({}, { budget: { maxTokens: 45 } })).session("boss");
  const task = told({ call: "list_agents" }, { call: "list_agents" }, { say: "done" });
  expect(await turnOf(session, spawns({ task }))).toEqual(["budget_spent"]);
  expect(await session.spending()).toMatchObject({ tokens: 45 });
});

test("an agent that nobody waits for spends its session's budget too, and nothing beyond it", async () => {
  const session = await (await start({}, { budget: { maxTokens: 45 } })).session("boss");
  const task = told({ call: "list_agents" }, { call: "list_agents" }, { say: "done" });
  await session.turn(told(spawns({ task, wait: false }), { say: "on" }));
  await until("its task has ended", async () => (await session.tasks())[0]?.endedAt != null);
  expect(await session.tasks()).toMatchObject([{ state: "failed", error: { code: "budget_spent" } }]);
  expect(await session.spending()).toMatchObject({ tokens: 45 });
});
