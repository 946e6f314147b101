import { execFile } from "node:child_process";
import { open, stat } from "node:fs/promises";
import { join } from "node:path";
import { promisify } from "node:util";
import { scriptedModel } from "troupe";
import { expect, onTestFinished, test } from "vitest";
import { addPlugin, attempt, makeApp } from "../../support/apps.js";
import { firstToolValue, startTroupe } from "../../support/runtime.js";

// docs/isolation.md says that a thread does not contain these. A test that fails here is good news for that page.

test("a plugin reads what the process has open by its descriptor: descriptors are the process's", async () => {
  const app = await makeApp({ ".env": "SECRET=1" });
  const file = await open(join(app, ".env"));
  onTestFinished(() => file.close());
  const outcome = await attempt({ plugins: [{ module: addPlugin(app) }] }, [
    ["read", join(app, ".env")],
    ["descriptor", String(file.fd)],
  ]);
  expect(outcome).toEqual(["ERR_ACCESS_DENIED", "SECRET=1"]);
});

test("a plugin that fills libuv's pool keeps the host's files waiting: the pool is the process's", async () => {
  const app = await makeApp();
  // The pool takes work in its order: what the host asks for comes behind the third round, the plugin's first ends before.
  const tasks = 3 * Number(process.env.UV_THREADPOOL_SIZE ?? 4);
  const call = (act: string, on = "") => ({ toolCalls: [{ tool: "attempt", args: { act, on } }] });
  const model = scriptedModel({
    turns: [
      [call("derive", String(tasks)), { text: "begun" }],
      [call("firstDerived"), { text: "ended" }],
    ],
  });
  const plugins = [{ module: addPlugin(app) }];
  const troupe = await startTroupe({ sessionWorkers: 1, plugins, model });
  const session = await troupe.session("s");
  await session.turn("begin");
  await stat(app);
  const statedAt = performance.timeOrigin + performance.now();
  const firstDerivedAt = firstToolValue(await session.turn("end"));
  expect(firstDerivedAt).toEqual(expect.any(Number));
  expect(statedAt).toBeGreaterThan(firstDerivedAt as number);
});

test("a plugin that wants too much memory in one native call ends the whole process, whatever its heap limit", async () => {
  const app = await makeApp({
    "program.mjs": `
      import { createTroupe, scriptedModel } from "troupe";
      const call = { toolCalls: [{ tool: "attempt", args: { act: "exhaust" } }] };
      const troupe = await createTroupe({
        sessionWorkers: 1,
        model: scriptedModel({ turns: [[call, { text: "done" }]] }),
        plugins: [{ module: new URL("./plugin.mjs", import.meta.url), heapMb: 32 }],
      });
      const { toolCalls } = await (await troupe.session("s")).turn("go");
      console.log(JSON.stringify(toolCalls));
      await troupe.close();`,
  });
  addPlugin(app);
  const ended = await promisify(execFile)(process.execPath, [join(app, "program.mjs")]).catch((error) => error);
  expect(ended.signal ?? ended.code).toBe("SIGABRT");
});
