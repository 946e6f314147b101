import { execFileSync } from "node:child_process";
import { closeSync, constants, openSync } from "node:fs";
import { readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { createTroupe, type PluginEntry, scriptedModel, type TroupeOptions } from "troupe";
import { expect, onTestFinished, test } from "vitest";
import { listening } from "../../support/listening.js";
import { fixture, oneToolCall, RESIDENT, refusalOf, tempFolder, until } from "../../support/runtime.js";

async function hostile(options: TroupeOptions = {}, entry: Partial<PluginEntry> = {}) {
  const folder = await tempFolder();
  const [calls, pipe] = [join(folder, "calls"), join(folder, "pipe")];
  await writeFile(calls, "");
  execFileSync("mkfifo", [pipe]);
  const module = new URL(fixture("hostile/ends-or-blocks.mjs"));
  module.searchParams.set("calls", calls);
  module.searchParams.set("pipe", pipe);
  const permissions = { read: [calls, pipe], write: [calls] };
  const plugins = [{ module, permissions, ...entry }];
  const troupe = await createTroupe({ ...RESIDENT, drainMs: 500, sessionWorkers: 1, plugins, ...options });
  onTestFinished(() => troupe.close());
  // Whoever waits to read goes on when somebody has opened it to write.
  const release = () => closeSync(openSync(pipe, constants.O_WRONLY | constants.O_NONBLOCK));
  return { troupe, calls: async () => (await readFile(calls, "utf8")).length, release };
}

const codeOf = async (turn: PromiseLike<unknown>) => ((await refusalOf(turn)).cause as { code?: string }).code;

test("a call that ends its thread behind an await is made once more, alone, and then fails", async () => {
  const { troupe, calls } = await hostile();
  const [bad, good] = [await troupe.session("bad"), await troupe.session("good")];
  await good.turn("hi");
  expect(await codeOf(bad.turn("exit"))).toBe("worker_lost");
  expect(await calls()).toBe(2);
  expect((await good.turn("hi")).outcome.type).toBe("finished");
});

test("with two threads that do not end, a session that has blocked one is refused until one ends, and others go on", async () => {
  const { troupe, release } = await hostile();
  const [one, two, good] = [await troupe.session("one"), await troupe.session("two"), await troupe.session("good")];
  try {
    for (const bad of [one, two]) expect(await codeOf(bad.turn("block"))).toBe("plugin_blocked");
    await until("the session worker knows of both", async () => (await codeOf(one.turn("block"))) !== "plugin_blocked");
    expect(await codeOf(one.turn("block"))).toBe("plugin_unavailable");
    expect((await good.turn("hi")).outcome.type).toBe("finished");
  } finally {
    release();
  }
  await until("one of them has ended", () =>
    one.turn("hi").then(
      () => true,
      () => false,
    ),
  );
});

test("a runtime closes while a native call holds a plugin's thread that was given up", async () => {
  const { troupe, release } = await hostile();
  try {
    expect(await codeOf((await troupe.session("bad")).turn("block"))).toBe("plugin_blocked");
    await troupe.close();
  } finally {
    release();
  }
});

test("a runtime closes while a native call holds a plugin's thread that nobody has found blocked", async () => {
  const { troupe, calls, release } = await hostile({}, { blockedMs: 600_000 });
  try {
    const held = (await troupe.session("bad")).turn("block");
    await until("the call holds its thread", async () => (await calls()) === 1);
    await troupe.close();
    expect((await held).outcome).toMatchObject({ type: "stopped", reason: "cancelled" });
  } finally {
    release();
  }
});

test("arguments that a pattern of a plugin's own tool never ends with cost their call and the plugin's thread, and sessions beside it have their turns", async () => {
  const heard = listening();
  const { troupe } = await hostile({
    onEvent: heard.onEvent,
    model: oneToolCall("match", { word: `${"a".repeat(60)}!` }),
    models: { plain: scriptedModel({ turns: [[{ text: "fine" }]] }) },
  });
  const [bad, good] = [await troupe.session("bad"), await troupe.session("good")];
  let ended = false;
  const hanging = bad.turn("one").finally(() => {
    ended = true;
  });
  let beside = 0;
  for (; !ended; beside++) expect((await good.turn("hi", { model: "plain" })).text).toBe("fine");
  expect(beside).toBeGreaterThan(1);
  expect((await hanging).toolCalls[0]?.output).toMatchObject({
    status: "failure",
    failure: { code: "plugin_blocked" },
  });
  const { error } = await heard.first("tool_failed");
  expect(error).toMatchObject({ code: "plugin_blocked", message: expect.stringMatching(/blocked its thread/) });
  expect((await troupe.stats()).plugins[0]?.restarts).toBe(1);
});
