import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import type { PluginEntry, Session, TroupeOptions } from "troupe";
import { describe, expect, test } from "vitest";
import {
  firstToolValue,
  fixture,
  plugin,
  RESIDENT,
  refusalOf,
  startTroupe,
  tempFolder,
  until,
} from "../../support/runtime.js";
import { reasonOf } from "../../support/supervised.js";

const module = (query = "") => new URL(`${fixture("supervisor/spins.mjs")}?${query}`);
const options = (entry: Partial<PluginEntry> = {}): TroupeOptions => ({
  ...RESIDENT,
  sessionWorkers: 1,
  // Calls have much longer: what ends a spin is that it holds its thread.
  plugins: [{ module: module(), blockedMs: 100, deadlineMs: 600_000, ...entry }],
  model: fixture("models/obeys.mjs"),
});
const SPINS = { what: "spin" };
const calls = (session: Session, args: object = {}) => session.turn(`call work ${JSON.stringify(args)}\nsay done`);
const NEIGHBOURS = ["a", "b", "c", "d"];

/**
 * A runtime with sessions that have called the plugin. While one of them waits in a hook, another has it spin, and then all
 * others call it: none of them may feel it.
 */
async function withNeighbours() {
  const folder = await tempFolder();
  const spins = join(folder, "spins");
  const troupe = await startTroupe(
    options({ module: module(`spins=${spins}`), permissions: { read: [folder], write: [folder] } }),
  );
  const [waits, ...good] = await Promise.all(["waits", ...NEIGHBOURS].map((id) => troupe.session(id)));
  const all = await Promise.all([waits as Session, ...good].map((each) => calls(each)));
  expect(all.map(firstToolValue)).toEqual(all.map(() => "done"));
  return {
    troupe,
    /** What the deed came to, and what the others' calls answered. */
    async besides<T>(deed: () => PromiseLike<T>, call: (session: Session) => PromiseLike<unknown>) {
      const waiting = (waits as Session).turn("wait");
      await until("a hook waits", () => existsSync(`${spins}.awaited`));
      const done = deed();
      await until("it spins", () => existsSync(spins));
      const answers = await Promise.all(good.map(call));
      expect((await waiting).outcome.type).toBe("finished");
      return { done: await done, answers };
    },
  };
}
const toolOf = async (session: Session) => firstToolValue(await calls(session));
const DONE = NEIGHBOURS.map(() => "done");

describe("a plugin that spins", () => {
  test("in register has its session refused as blocked; its neighbours' calls succeed, and so does another session's turn", async () => {
    const { troupe, besides } = await withNeighbours();
    const open = async () => (await troupe.session("spins in register")).turn("say hi");
    const { done, answers } = await besides(() => refusalOf(open()), toolOf);
    expect(done).toMatchObject({ code: "plugin_blocked", details: { call: "register", reason: "blocked" } });
    expect(answers).toEqual(DONE);
    expect((await troupe.stats()).plugins[0]?.restarts).toBe(1);
    expect(await toolOf(await troupe.session("another"))).toBe("done");
  });

  test("in a tool has that call fail as blocked while its turn goes on; its neighbours' calls succeed, and so does its own next one", async () => {
    const { troupe, besides } = await withNeighbours();
    const bad = await troupe.session("bad");
    const { done, answers } = await besides(() => calls(bad, SPINS), toolOf);
    expect([done.outcome.type, firstToolValue(done)]).toEqual(["finished", "plugin_blocked"]);
    expect(answers).toEqual(DONE);
    expect(await toolOf(bad)).toBe("done");
  });

  test.each(["query", "action"] as const)(
    "in a %s has that call refused as blocked; its neighbours' calls succeed, and so does its own next one",
    async (kind) => {
      const asks = async (session: Session, args = {}) => {
        if (kind === "query") return session.query("test.spins.ask", args);
        const output = await session.action("test.spins.act", args);
        return output.status === "success" ? output.value : output;
      };
      const { troupe, besides } = await withNeighbours();
      const bad = await troupe.session("bad");
      const { done, answers } = await besides(
        () => refusalOf(asks(bad, SPINS)),
        (each) => asks(each),
      );
      expect(done).toMatchObject({ code: "plugin_blocked", details: { call: "operation", reason: "blocked" } });
      expect(answers).toEqual(DONE);
      expect(await asks(bad)).toBe("done");
    },
  );
});

describe("a plugin that spins while it is imported", () => {
  test.each([{}, { lazy: true }, { group: "ours" }])(
    "keeps a runtime from starting with plugin_load_timeout, by its loadMs and not its blockedMs: %j",
    async (entry) => {
      const spins = options({ module: module("import=always"), blockedMs: 600_000, loadMs: 300, ...entry });
      expect(await refusalOf(startTroupe(spins))).toMatchObject({
        code: "plugin_load_timeout",
        details: { loadMs: 300 },
      });
      expect(await reasonOf((await (await startTroupe(options())).session("s")).turn("say hi"))).toBe("finished");
    },
  );

  test("longer than its blockedMs, and not as long as its loadMs, is loaded", async () => {
    const troupe = await startTroupe(options({ module: module("import=while"), blockedMs: 50 }));
    expect((await (await troupe.session("s")).turn("say hi")).outcome.type).toBe("finished");
  });

  test("of the thread that is to replace one, has its calls wait for the next; other plugins' calls beside it succeed", async () => {
    const count = join(await tempFolder(), "imports");
    const entry = {
      module: module(`import=2&count=${count}`),
      permissions: { read: [count], write: [count] },
      loadMs: 500,
    };
    const other = { module: plugin("offends"), blockedMs: 60_000 };
    const { plugins = [], ...more } = options(entry);
    const troupe = await startTroupe({ ...more, plugins: [...plugins, other] });
    const good = await Promise.all(NEIGHBOURS.map((id) => troupe.session(id)));
    await Promise.all(good.map((each) => calls(each)));
    await troupe.kill({ plugin: "test.spins" });
    const waiting = good.map((each) => calls(each));
    await until("the next thread spins", () => readFileSync(count, "utf8").length === 2);
    expect(await Promise.all(good.map((each) => each.query("test.offends.turns")))).toEqual([1, 1, 1, 1]);
    expect((await Promise.all(waiting)).map(firstToolValue)).toEqual(good.map(() => "done"));
    expect(readFileSync(count, "utf8")).toBe("iii");
  });
});
