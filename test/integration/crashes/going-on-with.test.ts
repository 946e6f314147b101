import { switchFrame, type TroupeOptions, verifyStore } from "troupe";
import { describe, expect, test } from "vitest";
import { Elsewhere } from "../../support/elsewhere.js";
import { asking, closedUnder, stored } from "../../support/going-on.js";
import { gates } from "../../support/journaled.js";
import { EMPTY_OBJECT, fixture, startTroupe, until } from "../../support/runtime.js";

// What a turn that is taken up goes on with, beside prompt and tools: its frame, attachments, notes and overlay.

interface StoredPart {
  readonly source: { readonly kind: "stored"; readonly hash: string; readonly bytes: number };
}

test("a turn that is taken up in another frame goes on there, with what it was asked with in that frame", async () => {
  const { options, asked, hooks } = await asking();
  const gate = gates();
  const tools = {
    wait: gate.tool("wait"),
    leave: {
      description: "leave",
      inputSchema: EMPTY_OBJECT,
      execute: () => switchFrame({ frameId: "research", task: ":wait answer" }),
    },
  };
  const troupe = await startTroupe({ ...options, tools, instructions: "Be kind." });
  const session = await troupe.session("s");
  await session.turn("before");
  const turn = session.turn(":leave", { key: "k" });
  await until("the tool runs", () => gate.calls.length === 1);
  expect((await session.view()).frameId).toBe("research");
  const [before] = asked().slice(-1);
  const closed = troupe.close();
  // What came before the frame is stored; its turn goes on later.
  expect((await turn).issues).toMatchObject([{ code: "turn_suspended" }]);
  await closed;
  const prepared = hooks();

  const again = await startTroupe({ ...options, tools, instructions: "Be brief." });
  const resumed = await again.session("s");
  expect(await resumed.view()).toMatchObject({ frameId: "research", running: { turnId: "t3", step: 1 } });
  await until("the tool runs again", () => gate.calls.length === 2);
  gate.open("wait");
  await stored(again, 3);
  const after = asked().at(-1);
  expect(asked()).toHaveLength(4);
  // In its frame nothing of the history before is read, only what the context transform said.
  expect(before).toMatchObject({ history: [expect.stringMatching(/^context /)] });
  expect(before?.system).toContain("Be kind.");
  expect(after).toMatchObject({ system: before?.system, tools: before?.tools, history: before?.history });
  expect(after?.turn.slice(0, 2)).toEqual(before?.turn.slice(0, 2));
  expect(hooks()).toEqual(prepared);
  const { outcome, before: earlier } = await resumed.turn(":leave", { key: "k" });
  expect(outcome).toMatchObject({ type: "finished", text: "answer" });
  expect(earlier).toMatchObject([{ turnId: "t2", outcome: { type: "frame_switch", frameId: "research" } }]);
});

test("a turn that is taken up sends its attachments again, and they are stored with it", async () => {
  const { options, asked, path } = await asking();
  const gate = gates();
  const tools = { wait: gate.tool("wait") };
  const troupe = await startTroupe({ ...options, tools });
  const bytes = new Uint8Array([137, 80, 78, 71, 1, 2, 3]);
  const source = { kind: "inline", mediaType: "image/png", bytes } as const;
  const items = [
    { type: "text", text: ":wait answer" },
    { type: "attachment", source },
  ] as const;
  const turn = (await troupe.session("s")).turn({ items });
  await until("the tool runs", () => gate.calls.length === 1);
  await closedUnder(troupe, turn);

  const again = await startTroupe({ ...options, tools });
  await until("the tool runs again", () => gate.calls.length === 2);
  gate.open("wait");
  const session = await stored(again);
  const [before, after] = asked();
  expect(before?.turn[0]).toMatch(/^:wait answer\|[\w-]{43}$/);
  expect(after?.turn[0]).toBe(before?.turn[0]);
  const [message] = await session.messages();
  const part = message?.parts.find(({ type }) => type === "attachment");
  expect(part).toMatchObject({ mediaType: "image/png", source: { kind: "stored", bytes: bytes.length } });
  // It is there: another turn can be asked with it.
  const kept = { type: "attachment", source: { mediaType: "image/png", ...(part as StoredPart).source } } as const;
  expect((await session.turn({ items: [{ type: "text", text: "again" }, kept] })).outcome.type).toBe("finished");
  await again.close();
  expect(verifyStore(path).ok).toBe(true);
});

describe("what is laid over a turn and changes every turn", () => {
  test.each(["inline", "worker"] as const)(
    "is as it was in a turn that is taken up: its overlay, and the note behind the history (%s plugin)",
    async (tier) => {
      const { options, asked, hooks } = await asking(tier, { lays: true }, "lays");
      const gate = gates();
      const tools = { wait: gate.tool("wait"), plain: gate.quick("plain") };
      const troupe = await startTroupe({ ...options, tools });
      const session = await troupe.session("s");
      const turn = session.turn(":deep :wait :deep :plain answer", { key: "k" });
      await until("the tool runs", () => gate.calls.length === 1);
      await closedUnder(troupe, turn);
      const prepared = hooks();

      const again = await startTroupe({ ...options, tools });
      await until("the tool runs again", () => gate.calls.length === 2);
      gate.open("wait");
      const resumed = await stored(again);
      const { outcome, toolCalls } = await resumed.turn(":deep :wait :deep :plain answer", { key: "k" });
      expect(outcome).toMatchObject({ type: "finished", text: "answer" });
      expect(toolCalls.map(({ output }) => (output.status === "success" ? output.value : output))).toMatchObject([
        "deep 1",
        "through",
        // The plugin's state is that of the call before.
        "deep 2",
        // Its overlay leaves out the session's own tools.
        { status: "failure", failure: { code: "tool_unavailable" } },
      ]);
      const notes = asked().map(({ turn: said }) => said.filter((text) => text.includes("note ")));
      expect(notes).toHaveLength(5);
      expect(notes[0]).toHaveLength(1);
      expect(notes).toEqual(Array.from({ length: 5 }, () => notes[0]));
      expect(asked().map((each) => each.tools)).toEqual(Array.from({ length: 5 }, () => ["deep: deep", "wait: wait"]));
      expect(hooks()).toEqual(prepared);
      await resumed.turn("next");
      expect(
        asked()
          .at(-1)
          ?.turn.filter((text) => text.includes("note ")),
      ).not.toEqual(notes[0]);
      expect(hooks()).toEqual([...prepared, "transform", "prompt"]);
    },
  );
});

describe("a record under another tool's name", () => {
  const names = (options: TroupeOptions, renamed: Readonly<Record<string, string>>): TroupeOptions => ({
    ...options,
    plugins: [...(options.plugins ?? [])].map((entry) => ({
      ...entry,
      options: { ...(entry.options as object), names: renamed },
    })),
  });

  test("fails that call and not the turn that is taken up; what is recorded under its own name counts", async () => {
    const { options } = await asking("inline", {}, "lays");
    const gate = gates();
    const tools = {
      wait: gate.tool("wait"),
      old: gate.quick("old"),
      kept: gate.quick("kept"),
      other: gate.quick("other"),
    };
    const troupe = await startTroupe({ ...options, tools });
    const input = ":old :kept :wait answer";
    const turn = (await troupe.session("s")).turn(input, { key: "k" });
    await until("the third tool runs", () => gate.calls.length === 3);
    await closedUnder(troupe, turn);

    const again = await startTroupe({
      ...names(options, { old: "other" }),
      tools: { ...tools, wait: gate.quick("wait") },
    });
    const { outcome, toolCalls, issues } = await (await again.session("s")).turn(input, { key: "k" });
    expect({ outcome, issues }).toMatchObject({ outcome: { type: "finished", text: "answer" }, issues: [] });
    expect(toolCalls).toMatchObject([
      { toolName: "other", output: { status: "failure", failure: { kind: "internal", code: "replay_mismatch" } } },
      { toolName: "kept", output: { status: "success", value: "kept" } },
      { toolName: "wait", output: { status: "success", value: "wait" } },
    ]);
    expect(gate.calls).toEqual(["old", "kept", "wait", "wait"]);
  });

  test("fails that call also when it was a question, which nobody is asked any more", async () => {
    const { options } = await asking("inline", {}, "lays");
    const asked = { description: "ask", inputSchema: EMPTY_OBJECT, approval: true, execute: () => "ran" } as const;
    const tools = { ask: asked, other: asked };
    const troupe = await startTroupe({ ...options, tools });
    const turn = (await troupe.session("s")).turn(":ask answer", { key: "k" });
    await until("it waits", async () => (await troupe.pending()).calls.length === 1);
    await closedUnder(troupe, turn);

    const again = await startTroupe({ ...names(options, { ask: "other" }), tools });
    const { outcome, toolCalls } = await (await again.session("s")).turn(":ask answer", { key: "k" });
    expect(outcome).toMatchObject({ type: "finished", text: "answer" });
    expect(toolCalls).toMatchObject([{ toolName: "other", output: { failure: { code: "replay_mismatch" } } }]);
    expect((await again.pending()).calls).toEqual([]);
  });

  test("ends the turn when the host says so", async () => {
    const { options } = await asking("inline", {}, "lays");
    const ask = { ask: { module: fixture("tools/waits.mjs") }, other: { module: fixture("tools/waits.mjs") } };
    const stops: TroupeOptions = { ...options, tools: ask, journal: { onMismatch: "stop" } };
    const first = new Elsewhere(stops, { input: ":ask answer", extras: { key: "k" } });
    await first.says("tool_call_pending");
    await first.kill();
    const again = await startTroupe(names(stops, { ask: "other" }));
    const { outcome } = await (await again.session("s")).turn(":ask answer", { key: "k" });
    expect(outcome).toMatchObject({ type: "stopped", code: "replay_mismatch" });
  });
});
