import type { Session, TroupeOptions } from "troupe";
import { expect, test } from "vitest";
import { EMPTY_OBJECT, fixture, plugin, refusalOf, startTroupe } from "../../support/runtime.js";

const tool = (name: string) => ({ description: name, inputSchema: EMPTY_OBJECT, execute: () => name });
const AGENTS = {
  "wide@1": { tools: ["weather", "shell"] },
  "narrow@1": { tools: ["weather"] },
  "all@1": {},
};
const start = (options: TroupeOptions = {}) =>
  startTroupe({
    model: fixture("models/show-prompt.mjs"),
    tools: { weather: tool("weather"), shell: tool("shell"), mail: tool("mail") },
    agents: AGENTS,
    ...options,
  });
const toolsOf = async (session: Session): Promise<string[]> => JSON.parse((await session.turn("hello")).text).tools;

test("a fork has its parent's agent and version, also while the parent is not stored yet", async () => {
  const troupe = await start();
  const parent = await troupe.session("a", { agent: "wide" });
  expect((await (await parent.fork()).info()).agent).toBe("wide@1");
  await parent.turn("hello");
  await troupe.agents.put("wide@2", { tools: ["mail"] });
  const fork = await parent.fork();
  expect((await fork.info()).agent).toBe("wide@1");
  expect(await toolsOf(fork)).toEqual(["shell", "weather"]);
});

test("a fork can be given an agent with fewer tools, and none with more", async () => {
  const troupe = await start();
  const parent = await troupe.session("a", { agent: "wide" });
  await parent.turn("hello");
  const narrow = await parent.fork({ agent: "narrow" });
  expect([(await narrow.info()).agent, await toolsOf(narrow)]).toEqual(["narrow@1", ["weather"]]);
  expect((await refusalOf((await troupe.session("b", { agent: "narrow" })).fork({ agent: "wide" }))).code).toBe(
    "authority_widened",
  );
  expect((await refusalOf(parent.fork({ agent: "billing" }))).code).toBe("agent_unknown");
});

test("a fork's agent that names no tools has those of its parent, and so has one it is given later", async () => {
  const troupe = await start();
  const parent = await troupe.session("a", { agent: "narrow" });
  const fork = await parent.fork({ agent: "all" });
  expect(await toolsOf(fork)).toEqual(["weather"]);
  expect((await refusalOf(fork.setAgent("wide"))).code).toBe("authority_widened");
  await fork.refreshTools();
  expect(await toolsOf(fork)).toEqual(["weather"]);
  // Its own forks are bound by the same.
  expect(await toolsOf(await fork.fork())).toEqual(["weather"]);
});

test("an agent that is changed later gives forks no more than their parent's agent had", async () => {
  const troupe = await start();
  const fork = await (await troupe.session("a", { agent: "wide" })).fork({ agent: "narrow" });
  await troupe.agents.put("narrow@1", { tools: ["weather", "mail"] });
  expect(await toolsOf(fork)).toEqual(["weather"]);
});

test("a fork keeps the plugins that watch its parent, whichever agent it is given", async () => {
  const plugins = [{ module: plugin("counter") }, { module: plugin("notes"), optionalInChildren: true }];
  const troupe = await start({
    plugins,
    agents: { "watched@1": {}, "free@1": { plugins: [] }, "light@1": { plugins: ["test.counter"] } },
  });
  const parent = await troupe.session("a", { agent: "watched" });
  await parent.turn("hello");
  expect((await refusalOf(parent.fork({ agent: "free" }))).code).toBe("plugin_not_droppable");
  const light = await parent.fork({ agent: "light" });
  expect(await toolsOf(light)).toContain("count");
  expect((await refusalOf(light.query("notes.list"))).code).toBe("operation_unknown");
  // A root is the host's own.
  expect(await toolsOf(await troupe.session("b", { agent: "free" }))).toEqual(["mail", "shell", "weather"]);
});

test("a fork of a session that was made with some of the plugins has no others", async () => {
  const plugins = [{ module: plugin("counter") }, { module: plugin("notes") }];
  const troupe = await start({ plugins });
  const parent = await troupe.session("a", { plugins: ["test.notes"] });
  await parent.turn("hello");
  const fork = await parent.fork();
  expect(await fork.query("notes.list")).toEqual([]);
  expect(await toolsOf(fork)).not.toContain("count");
});
