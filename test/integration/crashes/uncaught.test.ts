import type { Troupe, TroupeError, TroupeOptions, TurnResult } from "troupe";
import { describe, expect, onTestFinished, test } from "vitest";
import { fixture, startTroupe, tempFolder } from "../../support/runtime.js";

const MODEL = fixture("floating/model.mjs");
const PLUGIN = fixture("floating/plugin.mjs");
const OWNERS = {
  "the model": { kind: "model", name: "", module: MODEL.href },
  "the plugin": { kind: "plugin", name: "test.floating", module: PLUGIN.href },
} as const;

/** Every session on one worker, beside a model and an inline plugin that can do something wrong. */
const start = (options: TroupeOptions = {}) =>
  startTroupe({ sessionWorkers: 1, model: MODEL, plugins: [{ module: PLUGIN, tier: "inline" }], ...options });

/** What the host is warned of until the test ends. */
function warnings(): TroupeError[] {
  const heard: TroupeError[] = [];
  const listener = (warning: Error) => void heard.push(warning as TroupeError);
  process.on("warning", listener);
  onTestFinished(() => void process.off("warning", listener));
  return heard;
}

/** Twenty sessions turn at the same time; the first one is told something else than the others. */
async function turnsOfTwenty(troupe: Troupe, input: string): Promise<PromiseSettledResult<TurnResult>[]> {
  const sessions = await Promise.all(Array.from({ length: 20 }, (_, n) => troupe.session(`s${n}`)));
  return Promise.allSettled(sessions.map((session, n) => session.turn(n === 0 ? input : "hi")));
}

const restarts = async (troupe: Troupe) => (await troupe.stats()).workers.map((worker) => worker.restarts);

describe.each(["the model", "the plugin"] as const)("in %s, which runs on a session worker,", (who) => {
  test.each(["in memory", "journaled"] as const)(
    "a rejection nobody handles is told to the host with its owner, and every turn on the worker succeeds, %s",
    async (where) => {
      const heard = warnings();
      const troupe = await start(where === "journaled" ? { store: { path: await tempFolder() } } : {});
      const settled = await turnsOfTwenty(troupe, `reject in ${who}`);
      expect(settled.map((each) => (each.status === "fulfilled" ? each.value.text : each.reason.code))).toEqual([
        `You said: reject in ${who}`,
        ...Array.from({ length: 19 }, () => "You said: hi"),
      ]);
      expect(heard).toMatchObject([{ code: "floating_rejection", details: { owner: OWNERS[who], count: 1 } }]);
      expect(heard[0]?.message).toContain(`nobody waits for ${who}`);
      expect(heard[0]?.message).toContain(OWNERS[who].module);
      expect(await restarts(troupe)).toEqual([0]);
    },
  );

  test("an exception nobody catches ends the worker: in memory its turns are told whose it was, and the next succeed", async () => {
    const troupe = await start();
    const settled = await turnsOfTwenty(troupe, `throw in ${who}`);
    expect(settled.map(({ status }) => status)).toEqual(Array.from({ length: 20 }, () => "rejected"));
    for (const { reason } of settled as PromiseRejectedResult[]) {
      expect(reason).toMatchObject({
        code: "worker_lost",
        retryable: true,
        details: { owner: OWNERS[who] },
        cause: { code: "uncaught_exception" },
      });
      expect(reason.message).toContain(`thrown by ${who}`);
      expect(reason.message).toContain(OWNERS[who].module);
    }
    const again = await turnsOfTwenty(troupe, "hello");
    expect(again.map(({ status }) => status)).toEqual(Array.from({ length: 20 }, () => "fulfilled"));
    expect(await restarts(troupe)).toEqual([1]);
  });
});

test("a rejection with something that has no stack is told without an owner, and the worker goes on", async () => {
  const heard = warnings();
  const troupe = await start();
  const settled = await turnsOfTwenty(troupe, "reject a text in the plugin");
  expect(settled.map(({ status }) => status)).toEqual(Array.from({ length: 20 }, () => "fulfilled"));
  expect(heard).toMatchObject([{ code: "floating_rejection", details: { owner: null, at: null } }]);
  expect(heard[0]?.message).toContain("only a text of the plugin");
});

test("a rejection nobody handles while an inline plugin is loaded is told with its owner, and the runtime starts", async () => {
  const heard = warnings();
  const module = fixture("floating/at-load.mjs");
  const troupe = await start({ plugins: [{ module, tier: "inline" }] });
  expect((await (await troupe.session("s")).turn("hi")).text).toBe("You said: hi");
  expect(heard).toMatchObject([
    { code: "floating_rejection", details: { owner: { kind: "plugin", module: module.href } } },
  ]);
});
