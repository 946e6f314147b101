import { type Session, scriptedModel, type Troupe, type Turn } from "troupe";
import { describe, expect, test } from "vitest";
import { counted, gates } from "../../support/journaled.js";
import { collect, fixture, plugin, refusalOf, startTroupe, until } from "../../support/runtime.js";

const rolesOf = async (session: Session) => (await session.messages()).map(({ role }) => role);

describe("a turn whose session worker dies", () => {
  test("goes on in the next one, for whoever asked for it: nothing paid or done is paid or done again", async () => {
    const gate = gates();
    const { start, lines } = await counted({ tools: { first: gate.quick("first"), second: gate.tool("second") } });
    const troupe = await start();
    const session = await troupe.session("s");
    const turn = session.turn("first second answer");
    const seen = collect(turn);
    await until("the second tool runs", () => gate.calls.length === 2);
    await troupe.kill({ sessionWorker: 0 });
    // The second call was not finished: it is made again.
    await until("the second tool runs again", () => gate.calls.length === 3);
    gate.open("second");
    const result = await turn;
    expect(result).toMatchObject({ turnIndex: 1, modelCalls: 3, text: "answer" });
    expect(result.modelCallRecords.map(({ attempts }) => attempts.length)).toEqual([1, 1, 1]);
    expect(gate.calls).toEqual(["first", "second", "second"]);
    expect(await lines()).toEqual(["model t1 0", "model t1 1", "model t1 2"]);
    expect(await rolesOf(session)).toEqual(["user", "assistant", "tool", "assistant", "tool", "assistant"]);
    expect((await seen).filter(({ type }) => type === "turn_finished")).toHaveLength(1);
    expect(await session.info()).toMatchObject({ turns: 1 });
    // Nothing is left of it to be taken up again.
    await troupe.kill({ sessionWorker: 0 });
    expect(await session.turn("again")).toMatchObject({ turnIndex: 2, text: "again" });
    expect((await troupe.stats()).turns).toEqual({ asked: 2, finished: 2, refused: 0 });
  });

  test("is asked for anew when it had done nothing, and so are the turns behind it, in their order", async () => {
    const gate = gates();
    const { start, lines } = await counted({ tools: { wait: gate.tool("wait") } });
    const troupe = await start();
    const session = await troupe.session("s");
    const turns = [session.turn("wait one"), session.turn("two"), session.turn("three")];
    await until("the tool runs", () => gate.calls.length === 1);
    await troupe.kill({ sessionWorker: 0 });
    await until("the tool runs again", () => gate.calls.length === 2);
    gate.open("wait");
    expect((await Promise.all(turns)).map(({ turnIndex, text }) => [turnIndex, text])).toEqual([
      [1, "one"],
      [2, "two"],
      [3, "three"],
    ]);
    expect(await lines()).toEqual(["model t1 0", "model t1 1", "model t2 0", "model t3 0"]);
  });

  test("can still be cancelled, and is then stored as cancelled", async () => {
    const gate = gates();
    const { start } = await counted({ tools: { wait: gate.tool("wait") } });
    const troupe = await start();
    const session = await troupe.session("s");
    const turn = session.turn("wait never");
    await until("the tool runs", () => gate.calls.length === 1);
    await troupe.kill({ sessionWorker: 0 });
    await until("the tool runs again", () => gate.calls.length === 2);
    turn.cancel("Enough.");
    expect((await turn).outcome).toMatchObject({ type: "stopped", reason: "cancelled", message: "Enough." });
  });

  test("again and again, at the same place, is stopped and says so", async () => {
    const { start, lines } = await counted();
    const troupe = await start();
    const session = await troupe.session("s");
    const result = await session.turn("exit");
    expect(result).toMatchObject({
      turnIndex: 1,
      outcome: { type: "stopped", reason: "runtime_error", code: "turn_poisoned" },
    });
    // Whether the first death came before anything was written down is the threads' affair.
    expect([4, 5]).toContain((await lines()).length);
    expect((await session.turn("fine")).text).toBe("fine");
  });

  test("is refused when the runtime has no journal", async () => {
    const gate = gates();
    const { start } = await counted({ tools: { wait: gate.tool("wait") }, journal: false });
    const troupe = await start();
    const session = await troupe.session("s");
    const turn = session.turn("wait never");
    await until("the tool runs", () => gate.calls.length === 1);
    await troupe.kill({ sessionWorker: 0 });
    expect(await refusalOf(turn)).toMatchObject({ code: "worker_lost", retryable: true });
    expect((await session.turn("next")).turnIndex).toBe(1);
  });
});

describe("a turn the runtime is closed under", () => {
  test("is kept, and goes on when the next runtime starts, asked by nobody", async () => {
    const gate = gates();
    const { start, lines } = await counted({ tools: { first: gate.quick("first"), wait: gate.tool("wait") } });
    const troupe = await start();
    const session = await troupe.session("s");
    const turn = session.turn("first wait answer");
    await until("the tool runs", () => gate.calls.length === 2);
    const closed = troupe.close();
    expect(await refusalOf(turn)).toMatchObject({ code: "turn_suspended" });
    await closed;
    const again = await start();
    await until("the tool runs again", () => gate.calls.length === 3);
    gate.open("wait");
    const session2 = await again.session("s");
    await until("the turn is stored", async () => (await session2.info()).turns === 1);
    expect(gate.calls).toEqual(["first", "wait", "wait"]);
    expect(await lines()).toEqual(["model t1 0", "model t1 1", "model t1 2"]);
    expect((await session2.messages({ from: -1 }))[0]?.parts).toEqual([{ type: "text", text: "answer" }]);
  });

  test("takes its key along: asked for again by it, it is the same turn", async () => {
    const gate = gates();
    const { start, lines } = await counted({ tools: { wait: gate.tool("wait") } });
    const troupe = await start();
    const turn = (await troupe.session("s")).turn("wait answer", { key: "k" });
    await until("the tool runs", () => gate.calls.length === 1);
    const closed = troupe.close();
    await refusalOf(turn);
    await closed;
    const again = await start();
    await until("the tool runs again", () => gate.calls.length === 2);
    const same = (await again.session("s")).turn("wait answer", { key: "k" });
    gate.open("wait");
    expect(await same).toMatchObject({ turnIndex: 1, text: "answer" });
    expect(await lines()).toEqual(["model t1 0", "model t1 1"]);
  });

  test("does not go on as something else when the host says so: what the model would be asked now is not what it was asked then", async () => {
    const gate = gates();
    const { start, options } = await counted({ tools: { wait: gate.tool("wait") }, instructions: "Be kind." });
    const troupe = await start();
    const turn = (await troupe.session("s")).turn("wait answer", { key: "k" });
    await until("the tool runs", () => gate.calls.length === 1);
    const closed = troupe.close();
    await refusalOf(turn);
    await closed;
    const other = await startTroupe({ ...options, instructions: "Be brief.", journal: { onMismatch: "stop" } });
    const session = await other.session("s");
    const { outcome, issues } = await session.turn("wait answer", { key: "k" });
    expect(outcome).toMatchObject({ type: "stopped", reason: "runtime_error", code: "replay_mismatch" });
    expect(issues[0]?.message).toMatch(/They differ at \$\.system\.$/);
    expect((await session.turn("fine")).turnIndex).toBe(2);
    expect(gate.calls).toEqual(["wait"]);
  });
});

describe("a tool call that waits for a person", () => {
  const tools = { ask: { module: fixture("tools/waits.mjs") } };

  /** Closes the runtime under a turn whose call waits; by this key it is answered. */
  async function closeWhilePending(troupe: Troupe, turn: Turn): Promise<string> {
    let key = "";
    const reading = (async () => {
      for await (const activity of turn) if (activity.type === "tool_call_pending") ({ key } = activity);
    })().catch(() => undefined);
    await until("it is pending", () => key !== "");
    const closed = troupe.close();
    expect(await refusalOf(turn)).toMatchObject({ code: "turn_suspended" });
    await Promise.all([closed, reading]);
    return key;
  }

  test("goes on waiting in the next process, and is answered there", async () => {
    const { start, lines } = await counted({ tools });
    const troupe = await start();
    const session = await troupe.session("s");
    const turn = session.turn("ask answer");
    const key = await closeWhilePending(troupe, turn);
    const again = await start();
    await again.completeTool(key, { value: "yes" });
    expect(await refusalOf(again.completeTool(key, { value: "no" }))).toMatchObject({ code: "completion_unknown" });
    const session2 = await again.session("s");
    await until("the turn is stored", async () => (await session2.info()).turns === 1);
    const [result] = (await session2.messages()).filter(({ role }) => role === "tool");
    expect(result?.parts).toMatchObject([{ type: "tool_result", status: "success", text: "yes" }]);
    expect(await lines()).toEqual(["model t1 0", "model t1 1"]);
  });

  test("goes on waiting also when code made it, which runs again and finds what it had done", async () => {
    const { quick, calls } = gates();
    const code = "```calc\ncall note\ncall ask\n```";
    const model = scriptedModel({ turns: [[{ text: code }, { text: "done" }]] });
    const protocol = { module: plugin("calc") };
    const { start } = await counted({ tools: { ...tools, note: quick("note") }, model, protocol });
    const troupe = await start();
    const turn = (await troupe.session("s")).turn("go");
    const key = await closeWhilePending(troupe, turn);
    const again = await start();
    await again.completeTool(key, { value: "yes" });
    const session = await again.session("s");
    await until("the turn is stored", async () => (await session.info()).turns === 1);
    const read = (await session.messages()).find(({ origin }) => origin?.kind === "protocol");
    expect(read?.parts).toEqual([{ type: "text", text: "note\nyes" }]);
    expect(calls).toEqual(["note"]);
  });

  test("does not forget an answer that was given just before a crash", async () => {
    const { start } = await counted({ tools });
    const troupe = await start();
    const session = await troupe.session("s");
    const turn = session.turn("ask hang");
    for await (const activity of turn) {
      if (activity.type === "tool_call_pending") await troupe.completeTool(activity.key, { value: "yes" });
      if (activity.type === "model_call_started" && activity.step === 1) break;
    }
    await troupe.kill({ sessionWorker: 0 });
    const records: string[] = [];
    for await (const activity of turn) {
      records.push(activity.type);
      if (activity.type === "model_call_started" && activity.step === 1) turn.cancel();
    }
    expect(records).not.toContain("tool_call_pending");
    expect((await turn).toolCalls).toMatchObject([{ output: { status: "success", value: "yes" } }]);
  });
});

describe("a turn that was refused", () => {
  test("leaves nothing behind to be taken up again", async () => {
    const refuses = { module: plugin("refuses-once"), tier: "inline", options: { input: "no" } } as const;
    const { start, lines } = await counted({ plugins: [refuses] });
    const troupe = await start();
    const session = await troupe.session("s");
    expect(await refusalOf(session.turn("no"))).toMatchObject({ code: "plugin_prepare_turn" });
    await troupe.close();
    const again = await start();
    const session2 = await again.session("s");
    expect(await session2.info()).toMatchObject({ turns: 0, revision: 0 });
    expect((await session2.turn("yes")).turnIndex).toBe(1);
    expect(await lines()).toEqual(["model t1 0"]);
  });
});
