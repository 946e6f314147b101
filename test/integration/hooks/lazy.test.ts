import { expect, test } from "vitest";
import { plugin, registers, startTroupe, until } from "../../support/runtime.js";

const NOTES = new URL("../../../dist/examples/plugins/notes.js", import.meta.url);

test("a lazy plugin has no thread until it is called, and one from then on", async () => {
  const troupe = await startTroupe({ plugins: [{ module: NOTES, lazy: true }] });
  const session = await troupe.session("a");
  expect((await troupe.stats()).plugins).toMatchObject([{ threadId: -1, restarts: 0 }]);
  const first = await session.command("notes.add", { text: "milk" });
  expect(first.output).toBeDefined();
  const { plugins } = await troupe.stats();
  expect(plugins).toMatchObject([{ threadId: expect.any(Number), restarts: 0 }]);
  expect(plugins[0]?.threadId).toBeGreaterThan(0);
  await session.command("notes.add", { text: "bread" });
  expect((await troupe.stats()).plugins).toEqual(plugins);
});

test("calls of many sessions that wait for a lazy plugin are all made on its first thread", async () => {
  const troupe = await startTroupe({ plugins: [{ module: NOTES, lazy: true }] });
  const sessions = await Promise.all(Array.from({ length: 8 }, (_, n) => troupe.session(`s${n}`)));
  await Promise.all(sessions.map((session) => session.command("notes.add", { text: "milk" })));
  const listed = await Promise.all(sessions.map((session) => session.query("notes.list")));
  expect(listed).toHaveLength(8);
  expect((await troupe.stats()).plugins).toMatchObject([{ restarts: 0 }]);
});

test("a lazy plugin that cannot be loaded fails the start of the runtime as any other", async () => {
  await expect(startTroupe({ plugins: [{ module: plugin("registers"), lazy: true }] })).rejects.toMatchObject({
    code: "plugin_invalid",
  });
});

test("a lazy plugin that registers is started by the first session", async () => {
  const troupe = await startTroupe({ plugins: [{ module: registers("test.lazy"), lazy: true }] });
  expect((await troupe.stats()).plugins).toMatchObject([{ threadId: -1 }]);
  await (await troupe.session("a")).turn("hi");
  expect((await troupe.stats()).plugins[0]?.threadId).toBeGreaterThan(0);
});

test("a lazy plugin whose thread died after its first call is replaced", async () => {
  const troupe = await startTroupe({ plugins: [{ module: NOTES, lazy: true }] });
  const session = await troupe.session("a");
  await session.command("notes.add", { text: "milk" });
  await troupe.kill({ plugin: "example.notes" });
  await session.command("notes.add", { text: "bread" });
  expect((await troupe.stats()).plugins).toMatchObject([{ restarts: 1 }]);
});

test("a plugin that nobody has called within ten seconds has no thread any more, and its first call starts one, which is no restart", async () => {
  const troupe = await startTroupe({ plugins: [{ module: NOTES }] });
  const thread = async () => (await troupe.stats()).plugins[0]?.threadId;
  expect(await thread()).toBeGreaterThan(0);
  await until("its thread has ended", async () => (await thread()) === -1);
  const session = await troupe.session("a");
  await session.command("notes.add", { text: "milk" });
  expect(await thread()).toBeGreaterThan(0);
  expect((await troupe.stats()).plugins).toMatchObject([{ restarts: 0 }]);
});
