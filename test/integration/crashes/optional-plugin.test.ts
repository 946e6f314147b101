import { createTroupe, type PluginEntry, type Troupe, type TroupeError, type TroupeOptions } from "troupe";
import { describe, expect, onTestFinished, test } from "vitest";
import {
  EMPTY_OBJECT,
  firstToolValue,
  fixture,
  plugin,
  RESIDENT,
  refusalOf,
  tempFolder,
  until,
} from "../../support/runtime.js";

const ID = "test.given-up";

/** A runtime whose plugin died and could not be loaded again, with a session that had it. */
async function givenUp(entry: Partial<PluginEntry>, more: TroupeOptions = {}) {
  const marker = `${await tempFolder()}/loaded`;
  const troupe: Troupe = await createTroupe({
    sessionWorkers: 1,
    plugins: [{ module: plugin("given-up"), permissions: "all", options: { marker }, ...entry }],
    tools: { dig: { description: "d", inputSchema: EMPTY_OBJECT, execute: () => "dug" } },
    model: fixture("models/obeys.mjs"),
    drainMs: 500,
    ...more,
  });
  onTestFinished(() => troupe.close());
  const session = await troupe.session("s");
  expect((await session.turn("say one")).issues).toEqual([]);
  await troupe.kill({ plugin: ID });
  await until("the plugin was given up", async () => {
    const [result] = await Promise.allSettled([session.turn("say two")]);
    if (result.status === "rejected") return (result.reason.cause as TroupeError | undefined)?.code === CODE;
    return result.value.issues.some(({ code }) => code === CODE);
  });
  return { troupe, session };
}

const CODE = "plugin_unavailable";

describe("an optional plugin that was given up", () => {
  test("is passed over by every hook of a turn, which says so once and goes on", async () => {
    const { session } = await givenUp({ optional: true });
    const result = await session.turn("call dig\nsay done");
    expect([result.outcome, firstToolValue(result)]).toEqual([{ type: "finished", text: "done" }, "dug"]);
    expect(result.issues).toMatchObject([{ kind: "plugin", code: CODE, pluginId: ID }]);
    expect(result.issues[0]?.message).toContain("It is optional");
    expect((await session.turn("say again")).issues.map(({ code }) => code)).toEqual([CODE]);
  });

  test("refuses its tools with plugin_unavailable, which the model reads, and its turn has one issue", async () => {
    const { session } = await givenUp({ optional: true });
    const result = await session.turn("call its\nsay done");
    expect([result.text, firstToolValue(result)]).toEqual(["done", CODE]);
    expect(result.issues.map(({ code }) => code)).toEqual([CODE]);
  });

  test("does not keep a new session from being opened", async () => {
    const { troupe } = await givenUp({ optional: true });
    const result = await (await troupe.session("new")).turn("say hello");
    expect([result.text, result.issues.map(({ code }) => code)]).toEqual(["hello", [CODE]]);
  });

  test("is passed over also where its policy is fail_turn", async () => {
    const { session } = await givenUp({ optional: true, onFailure: "fail_turn" });
    const result = await session.turn("call dig\nsay done");
    expect([result.text, result.issues.map(({ code }) => code)]).toEqual(["done", [CODE]]);
  });
});

describe("a required plugin that was given up", () => {
  test("fails the turns of its sessions with plugin_unavailable as their cause", async () => {
    const { session } = await givenUp({}, RESIDENT);
    const error = await refusalOf(session.turn("say done"));
    expect([error.code, (error.cause as TroupeError).code]).toEqual(["plugin_prepare_turn", CODE]);
  });

  test("refuses to open a session again that was parked, with plugin_unavailable as the cause", async () => {
    const { session } = await givenUp({}, RESIDENT);
    await session.park();
    const error = await refusalOf(session.turn("say done"));
    expect([error.code, (error.cause as TroupeError).code]).toEqual(["session_restore_failed", CODE]);
  });
});
