import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { scriptedModel, type TroupeOptions } from "troupe";
import { expect, test } from "vitest";
import { spentBeside, told, usage } from "../../support/asking.js";
import { Elsewhere } from "../../support/elsewhere.js";
import { isAlive, kindred } from "../../support/pids.js";
import { fixture, plugin, startTroupe, tempFolder, until } from "../../support/runtime.js";

const GRANTED = { permissions: "all", blockedMs: 60_000 } as const;

test.each([
  ["tool", "begins"],
  ["hook around a tool call", "guarded"],
] as const)(
  "a %s that begins work at once and is run again when its session's worker was killed begins none twice, and the same asked for twice is two",
  async (_, tool) => {
    const folder = await tempFolder();
    const file = join(folder, "held");
    const troupe = await startTroupe({
      store: { path: join(folder, "store") },
      sessionWorkers: 1,
      plugins: [{ module: plugin("begins-work"), deadlineMs: 60_000, ...GRANTED }],
      model: scriptedModel({
        turns: [[{ toolCalls: [{ tool, args: { file } }] }, { text: "done" }], [{ text: "heard" }]],
      }),
    });
    const session = await troupe.session("s");
    await session.subscribe("begins.begun");
    const turn = session.turn("go");
    await until("it has begun", () => existsSync(file));
    await troupe.kill({ sessionWorker: 0 });
    expect((await turn).text).toBe("done");
    const [first, again] = ["first", "again"].map((time) => JSON.parse(readFileSync(`${file}.${time}`, "utf8")));
    expect(again).toEqual(first);
    const tasks = await session.tasks();
    expect(tasks.map(({ label }) => label).sort()).toEqual(["one", "two", "work 1", "work 2", "work 2"]);
    expect(new Set(Object.values(first)).size).toBe(8);
    expect(first[7]).toEqual([expect.any(Number), 0, "ab"]);
    const { 5: pid, 6: other } = first as Record<number, number>;
    expect([pid, other].map((each) => isAlive(each as number))).toEqual([true, true]);
    const { pids } = kindred(pid as number);
    expect(pids().filter((each) => readFileSync(`/proc/${each}/cmdline`, "utf8").startsWith("sleep\0"))).toHaveLength(
      2,
    );
    await until("it was told of the event", async () => (await session.info()).turns === 2);
    const said = (await session.messages()).filter(({ role }) => role === "user");
    expect(said).toHaveLength(2);
  },
);

test.each([
  ["with a journal", (path: string): TroupeOptions => ({ store: { path } })],
  ["without a journal, in a store on disk", (path: string): TroupeOptions => ({ store: { path }, journal: false })],
  ["without a journal, in memory", (): TroupeOptions => ({ store: { memory: true } })],
])(
  "what a hook asked of the host is answered again when its plugin's thread was killed, and nothing of it is done twice: %s",
  async (_, options) => {
    const folder = await tempFolder();
    const file = join(folder, "answers");
    const lines = () => (existsSync(file) ? readFileSync(file, "utf8").trimEnd().split("\n") : []);
    const troupe = await startTroupe({
      ...options(join(folder, "store")),
      sessionWorkers: 1,
      plugins: [{ module: plugin("asks-then-waits"), deadlineMs: 60_000, ...GRANTED }],
      model: fixture("models/told.mjs"),
    });
    const session = await troupe.session("s");
    const turn = session.turn(told({ call: "guarded", args: { file } }, { say: "done" }));
    await until("it waits", () => lines().length === 1);
    await troupe.kill({ plugin: "test.asks-then-waits" });
    expect((await turn).text).toBe("done");
    const [first, again, ...more] = lines();
    expect([again, more]).toEqual([first, []]);
    const [childId] = JSON.parse(first as string) as [string];
    const { sessions } = await troupe.listSessions();
    expect(sessions.map(({ id }) => id).sort()).toEqual([childId, "s"].sort());
    const child = await troupe.session(childId);
    expect((await child.info()).turns).toBe(1);
    const texts = (await child.messages()).flatMap(({ parts }) => parts.map((part) => "text" in part && part.text));
    expect(texts).toEqual(["hello", "You said: hello", "noted"]);
    expect((await session.tasks()).map(({ label }) => label)).toEqual(["once"]);
    // One completion, and one turn of the child.
    expect(spentBeside(await session.view())).toEqual({ counts: usage(3, 2), child: usage(10, 5) });
  },
);

test("what a protocol begins before a model call it begins once, also when that call is made again by another worker", async () => {
  const folder = await tempFolder();
  const file = join(folder, "held");
  const troupe = await startTroupe({
    store: { path: join(folder, "store") },
    sessionWorkers: 1,
    protocol: { module: plugin("calc"), options: {}, ...GRANTED },
    model: scriptedModel({ turns: [[{ text: "done" }]] }),
  });
  const session = await troupe.session("s");
  const turn = session.turn(`begin ${file}`);
  await until("it has begun", () => existsSync(file));
  await troupe.kill({ sessionWorker: 0 });
  expect((await turn).text).toBe("done");
  const log = await session.query<{ begun?: { before: [string, number][]; now: [string, number][] } }[]>("calc.log", {
    of: "s",
  });
  const { before, now } = log.find(({ begun }) => begun !== undefined)?.begun ?? { before: [], now: [] };
  expect(now).toEqual(before);
  expect((await session.tasks()).map(({ label }) => label).sort()).toEqual(["one", "two"]);
  const pids = now.slice(2).map(([, pid]) => pid);
  expect([new Set(pids).size, ...pids.map(isAlive)]).toEqual([2, true, true]);
});

test("a hook whose host was killed behind a process it had begins that again, and its turn goes on", async () => {
  const folder = await tempFolder();
  const [path, file] = [join(folder, "store"), join(folder, "held")];
  const options = {
    store: { path },
    sessionWorkers: 1,
    plugins: [{ module: plugin("begins-work"), deadlineMs: 60_000, ...GRANTED }],
    model: fixture("models/told.mjs"),
  };
  const elsewhere = new Elsewhere(options, { input: told({ call: "guarded", args: { file } }, { say: "done" }) });
  await until("it has begun", () => existsSync(file));
  const first = JSON.parse(readFileSync(`${file}.first`, "utf8"));
  await elsewhere.kill();
  await until("its processes have ended", () => ![first[5], first[6]].some(isAlive));
  const troupe = await startTroupe(options);
  const session = await troupe.session("s");
  await until("the turn is stored", async () => (await session.info()).turns === 1);
  const again = JSON.parse(readFileSync(`${file}.again`, "utf8"));
  for (const nth of [0, 1, 2, 3, 4]) expect(again[nth]).toBe(first[nth]);
  expect([again[5], again[6]].map(isAlive)).toEqual([true, true]);
  expect(again[7].slice(1)).toEqual([0, "ab"]);
  const [, , result] = await session.messages();
  expect(result?.parts).toMatchObject([{ status: "success", text: "done" }]);
});
