import { readdir, readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { listSessions, pendingTool, type StoreProgress, scriptedModel, type Troupe, verifyStore } from "troupe";
import { describe, expect, test } from "vitest";
import {
  EMPTY_OBJECT,
  firstToolValue,
  oneToolCall,
  plugin,
  refusalOf,
  startTroupe,
  tempFolder,
  until,
} from "../../support/runtime.js";

const ECHO = scriptedModel({ turns: [[{ text: "{input}" }]] });
/** Asks somebody and waits for the answer. */
const ASKS = {
  model: oneToolCall("ask"),
  tools: { ask: { description: "Asks", inputSchema: EMPTY_OBJECT, execute: () => pendingTool() } },
};
const idsIn = async (troupe: Troupe) => (await troupe.listSessions()).sessions.map(({ id }) => id);
const isRunning = (troupe: Troupe, id: string) =>
  until(`a turn of ${id} runs`, async () => (await (await troupe.session(id)).info()).state === "running");

describe("a session that is deleted", () => {
  test("is gone for good, while its forks go on with the history they share", async () => {
    const troupe = await startTroupe({ model: ECHO, store: { path: await tempFolder() } });
    const parent = await troupe.session("parent");
    await parent.turn("one");
    const fork = await parent.fork({ id: "fork" });
    await parent.turn("two");
    const watched = (async () => {
      const seen: string[] = [];
      for await (const { event } of parent.observe()) seen.push(event.type);
      return seen;
    })();
    await parent.view();
    expect(await troupe.deleteSession("parent")).toBe(true);
    expect(await watched).toEqual([]);
    expect(await troupe.deleteSession("parent")).toBe(false);
    expect(await idsIn(troupe)).toEqual(["fork"]);
    expect((await refusalOf(troupe.session("parent"))).code).toBe("session_deleted");
    expect((await refusalOf(fork.fork({ id: "parent" }))).code).toBe("session_deleted");
    expect((await refusalOf(parent.turn("three"))).code).toBe("session_deleted");
    expect(await troupe.prune({ graceMs: 0 })).toMatchObject({ segments: { kept: 1, removed: 1, waiting: 0 } });
    expect((await fork.turn("mine")).turnIndex).toBe(2);
    await fork.park();
    expect(
      (await fork.messages()).flatMap(({ parts }) => parts.map((part) => part.type === "text" && part.text)),
    ).toEqual(["one", "one", "mine", "mine"]);
    const { resident, parked } = (await troupe.stats()).sessions;
    expect(resident + parked).toBe(1);
  });

  test("is refused while something is under way, or has it cancelled, whoever began it", async () => {
    const troupe = await startTroupe({ ...ASKS, maxResident: 100, parkAfterMs: 600_000 });
    const [asked, enqueued] = [await troupe.session("asked"), await troupe.session("enqueued")];
    const turn = asked.turn("hi");
    await enqueued.enqueue("hi");
    for (const { id } of [asked, enqueued]) {
      await isRunning(troupe, id);
      expect(await refusalOf(troupe.deleteSession(id))).toMatchObject({ code: "session_busy", retryable: true });
    }
    const behind = asked.turn("behind it");
    expect(await troupe.deleteSession("asked", { running: "cancel" })).toBe(true);
    for (const ended of [turn, behind])
      expect((await ended).outcome).toMatchObject({ reason: "cancelled", message: "The session is being deleted." });
    expect(await troupe.deleteSession("enqueued", { running: "cancel" })).toBe(true);
    expect(await idsIn(troupe)).toEqual([]);
    expect((await troupe.stats()).sessions).toEqual({ resident: 0, parked: 0 });
    const wrong = { running: "maybe" as "cancel" };
    expect((await refusalOf(troupe.deleteSession("asked", wrong))).code).toBe("invalid_options");
  });

  test("takes along a turn of an earlier process that waits, and its journal", async () => {
    const path = await tempFolder();
    const before = await startTroupe({ ...ASKS, store: { path }, drainMs: 1 });
    const turn = (await before.session("s")).turn("hi");
    await isRunning(before, "s");
    const refused = refusalOf(turn);
    await before.close();
    expect((await refused).code).toBe("turn_suspended");
    const troupe = await startTroupe({ ...ASKS, store: { path } });
    await isRunning(troupe, "s");
    const old = { graceMs: 0, journalsOlderThanMs: 0 };
    expect((await troupe.prune(old)).journals).toEqual({ kept: 1, removed: 0, waiting: 0 });
    expect((await refusalOf(troupe.deleteSession("s"))).code).toBe("session_busy");
    expect(await troupe.deleteSession("s", { running: "cancel" })).toBe(true);
    expect((await troupe.prune({ graceMs: 0 })).journals).toEqual({ kept: 0, removed: 0, waiting: 0 });
    await troupe.close();
    expect(verifyStore(path)).toMatchObject({ ok: true, sessions: [] });
  });

  test("need not be one that can be stored, nor one that was ever opened here", async () => {
    const path = await tempFolder();
    const before = await startTroupe({ store: { path } });
    await (await before.session("old")).turn("hi");
    await before.close();
    const troupe = await startTroupe({ store: { path }, plugins: [{ module: plugin("unsavable"), tier: "inline" }] });
    await troupe.session("unsavable");
    expect(await troupe.deleteSession("unsavable")).toBe(false);
    expect(await troupe.deleteSession("nobody")).toBe(false);
    expect(await troupe.deleteSession("old")).toBe(true);
    expect((await troupe.stats()).sessions).toEqual({ resident: 0, parked: 0 });
    expect((await refusalOf(troupe.deleteSession(""))).code).toBe("invalid_session_id");
  });
});

describe("a session that is exported", () => {
  test("goes on in another runtime as it was: conversation, plugin state and attachments", async () => {
    const options = { plugins: [{ module: plugin("counter"), tier: "inline" as const }], model: oneToolCall("count") };
    const folder = await tempFolder();
    const [from, to] = [
      await startTroupe(options),
      await startTroupe({ ...options, store: { path: join(folder, "to") } }),
    ];
    const session = await from.session("s");
    await session.turn("one");
    const bytes = new Uint8Array(200_000).fill(7);
    await session.turn({
      items: [
        { type: "text", text: "two" },
        { type: "attachment", source: { kind: "inline", mediaType: "image/png", bytes } },
      ],
    });
    const file = join(folder, "s.troupe");
    const progress: StoreProgress[] = [];
    expect(await from.exportSession("s", { file, onProgress: (each) => progress.push(each) })).toBeUndefined();
    expect(progress).toEqual([{ step: "write", done: expect.any(Number), total: null }]);
    const json = await from.exportSession("s", { format: "json" });
    expect(JSON.parse(Buffer.from(json).toString("utf8"))).toMatchObject({
      format: "troupe-session",
      head: { sessionId: "s" },
    });

    expect(await to.importSession(file)).toEqual({ sessionId: "s", revision: 2 });
    expect(await to.importSession(json, { id: "copy" })).toEqual({ sessionId: "copy", revision: 2 });
    for (const id of ["s", "copy"]) {
      const imported = await to.session(id);
      expect(await imported.messages()).toEqual(await session.messages());
      expect(firstToolValue(await imported.turn("three"))).toBe(3);
    }
    expect(await idsIn(to)).toEqual(["copy", "s"]);
    expect(firstToolValue(await session.turn("three"))).toBe(3);

    const whole = await readFile(file);
    const refused: readonly (readonly [code: string, source: string | Uint8Array, id?: string])[] = [
      ["session_exists", file],
      ["session_exists", file, "copy"],
      ["export_damaged", whole.subarray(0, 1_000), "other"],
      ["export_damaged", Uint8Array.from(whole, (byte, i) => (i === 900 ? byte ^ 1 : byte)), "other"],
      ["export_damaged", Buffer.from("hello"), "other"],
      [
        "export_version_unknown",
        Buffer.from(Buffer.from(json).toString().replace('"version": 1', '"version": 3')),
        "other",
      ],
      ["export_file_failed", join(folder, "nobody"), "other"],
      ["invalid_session_id", file, ""],
    ];
    const { store } = await to.stats();
    for (const [code, source, id] of refused)
      expect([code, (await refusalOf(to.importSession(source, id === undefined ? {} : { id }))).code]).toEqual([
        code,
        code,
      ]);
    await to.deleteSession("copy");
    expect((await refusalOf(to.importSession(file, { id: "copy" }))).code).toBe("session_deleted");
    expect((await to.stats()).store.records).toBe(store.records);
    expect((await refusalOf(from.exportSession("nobody"))).code).toBe("session_unknown");
    await to.close();
    expect((await listSessions(join(folder, "to"))).sessions.map(({ id, turns }) => [id, turns])).toEqual([["s", 3]]);
  });

  test("is not when the host has changed its mind", async () => {
    const troupe = await startTroupe({ model: ECHO });
    const session = await troupe.session("s");
    const bytes = new Uint8Array(300_000).fill(7);
    await session.turn({ items: [{ type: "attachment", source: { kind: "inline", mediaType: "image/png", bytes } }] });
    const file = join(await tempFolder(), "s.troupe");
    const stopped = AbortSignal.abort();
    expect((await refusalOf(troupe.exportSession("s", { file, signal: stopped }))).code).toBe("aborted");
    expect(await readdir(join(file, ".."))).toEqual([]);
    const whole = await troupe.exportSession("s");
    expect((await refusalOf(troupe.importSession(whole, { id: "t", signal: stopped }))).code).toBe("aborted");
    expect((await refusalOf(troupe.prune({ signal: stopped }))).code).toBe("aborted");
    expect(await idsIn(troupe)).toEqual(["s"]);
  });
});

describe("a store that is in use", () => {
  test("is listed, pruned, exported from and backed up while turns go on, and nothing of them is lost", async () => {
    const folder = await tempFolder();
    const troupe = await startTroupe({
      plugins: [{ module: plugin("counter"), tier: "inline" }],
      model: oneToolCall("count"),
      store: { path: join(folder, "data") },
    });
    const sessions = await Promise.all(["a", "b", "c", "d"].map((id) => troupe.session(id)));
    const rounds = 10;
    const turning = sessions.map(async (session) => {
      const counted: unknown[] = [];
      for (let n = 0; n < rounds; n++) counted.push(firstToolValue(await session.turn("hi")));
      return counted;
    });
    await until("each session is stored", async () => (await idsIn(troupe)).length === 4);
    const copies: string[] = [];
    for (let n = 0; n < 3; n++) {
      await troupe.prune({ graceMs: 0 });
      const { sessionId } = await troupe.importSession(await troupe.exportSession("b"), { id: `copy ${n}` });
      copies.push(sessionId);
      await troupe.backup(join(folder, `backup ${n}`));
    }
    const expected = Array.from({ length: rounds }, (_, n) => n + 1);
    expect(await Promise.all(turning)).toEqual(sessions.map(() => expected));
    expect(await idsIn(troupe)).toEqual(["a", "b", "c", ...copies, "d"]);
    const first = await troupe.listSessions({ limit: 3 });
    expect(first).toEqual({
      sessions: ["a", "b", "c"].map((id) => ({
        id,
        turns: rounds,
        revision: rounds,
        state: "idle",
        changedAt: expect.any(Number),
      })),
      next: "c",
    });
    expect((await troupe.listSessions({ after: first.next ?? "" })).sessions.map(({ id }) => id)).toEqual([
      ...copies,
      "d",
    ]);
    const { components } = await troupe.prune({ graceMs: 0, dryRun: true });
    expect(await troupe.prune({ graceMs: 0 })).toMatchObject({ components });
    expect(await troupe.prune({ graceMs: 0 })).toMatchObject({ components: { kept: components.kept, removed: 0 } });
    await troupe.close();
    expect(verifyStore(join(folder, "data"))).toMatchObject({ ok: true, sessions: { length: 7 } });

    expect(verifyStore(join(folder, "backup 2")).ok).toBe(true);
    const restored = await startTroupe({
      plugins: [{ module: plugin("counter"), tier: "inline" }],
      model: oneToolCall("count"),
      store: { path: join(folder, "backup 2") },
    });
    expect((await restored.listSessions()).sessions).toHaveLength(7);
    // A turn that was under way at that moment goes on there first.
    const { turnIndex, toolCalls } = await (await restored.session("a")).turn("hi");
    expect(firstToolValue({ toolCalls })).toBe(turnIndex);
  });

  test("is not backed up over something else, and in memory not at all", async () => {
    const folder = await tempFolder();
    await writeFile(join(folder, "mine"), "");
    const troupe = await startTroupe({ store: { path: join(await tempFolder(), "data") } });
    expect((await refusalOf(troupe.backup(folder))).code).toBe("backup_exists");
    const inMemory = await startTroupe();
    expect((await refusalOf(inMemory.backup(join(folder, "new")))).code).toBe("store_not_on_disk");
    await troupe.close();
    for (const ask of [troupe.prune(), troupe.listSessions(), troupe.exportSession("s"), troupe.backup(folder)])
      expect((await refusalOf(ask)).code).toBe("closed");
  });
});
