import { EventEmitter, once } from "node:events";
import { createTroupe, pendingTool, type Session, scriptedModel, type Troupe } from "troupe";
import { describe, expect, test } from "vitest";
import { ask, asking, told, turnThatAsks } from "../../support/asking.js";
import { EMPTY_OBJECT, refusalOf, startTroupe, tempFolder, until } from "../../support/runtime.js";

const pays = Array.from({ length: 2 }, () => [{ toolCalls: [{ tool: "pay" }] }, { text: "{tool_result}" }]);
const model = scriptedModel({ turns: pays });
const pay = { description: "Pays.", inputSchema: EMPTY_OBJECT, approval: true as const, execute: () => "paid" };

/** The keys of the calls that wait, by session, when there are so many. */
async function keys(troupe: Troupe, count: number): Promise<Readonly<Record<string, string>>> {
  await until(`${count} wait`, async () => (await troupe.pending()).calls.length === count);
  return Object.fromEntries((await troupe.pending()).calls.map(({ sessionId, key }) => [sessionId, key]));
}

test("a call that waits for a yes holds no place of a tool that runs once at a time", async () => {
  const troupe = await startTroupe({ sessionWorkers: 1, model, tools: { pay: { ...pay, maxConcurrent: 1 } } });
  const [first, second] = await Promise.all(["first", "second"].map((id) => troupe.session(id)));
  const turns = [first?.turn("Pay."), second?.turn("Pay.")];
  const asked = await keys(troupe, 2);
  await troupe.approve(asked.second ?? "");
  expect((await turns[1])?.text).toBe("paid");
  await troupe.approve(asked.first ?? "");
  expect((await turns[0])?.text).toBe("paid");
});

test("a tool that runs behind a yes and then says that its result comes later waits under another key", async () => {
  const later = { ...pay, execute: () => pendingTool({ announcement: { kind: "client_tool" } }) };
  const troupe = await startTroupe({ sessionWorkers: 1, model, tools: { pay: later } });
  const turn = (await troupe.session("s")).turn("Pay.");
  const approval = (await keys(troupe, 1)).s ?? "";
  expect(await troupe.approve(approval)).toBe("counted");
  await until("its result is waited for", async () => (await keys(troupe, 1)).s !== approval);
  const [call] = (await troupe.pending()).calls;
  expect(call?.announcement).toEqual({ kind: "client_tool" });
  expect(await troupe.approve(approval)).toBe("already_answered");
  await troupe.completeTool(call?.key ?? "", { value: "paid elsewhere" });
  expect((await turn).text).toBe("paid elsewhere");
});

describe("a runtime with a journal that closes", () => {
  /** Whoever waited for it would wait longer than the test may take. */
  const LONG = { sessionWorkers: 1, drainMs: 600_000 };
  const stored = (session: Session) => until("it is stored", async () => (await session.info()).turns === 1);

  test.each<[string, (session: Session) => Promise<unknown>, unknown]>([
    ["a caller", async (session) => (await refusalOf(session.turn("Pay."))).code, "turn_suspended"],
    ["an input that waited", (session) => session.enqueue("Pay."), expect.objectContaining({ text: "Pay." })],
  ])(
    "keeps a call that waits in a turn of %s at once: the next one has it under the same key",
    async (_, begin, answer) => {
      const options = { ...LONG, store: { path: await tempFolder() }, model, tools: { pay } };
      const first = await createTroupe(options);
      const begun = begin(await first.session("s"));
      const { s: key = "" } = await keys(first, 1);
      await first.close();
      expect(await begun).toEqual(answer);
      const troupe = await startTroupe(options);
      expect((await keys(troupe, 1)).s).toBe(key);
      expect(await troupe.approve(key)).toBe("counted");
      const session = await troupe.session("s");
      await stored(session);
      expect((await session.messages()).at(-1)?.parts).toEqual([{ type: "text", text: "paid" }]);
      expect(await session.inputs()).toEqual([]);
    },
  );

  test("waits for a call that works beside one that waits, which is not made again", async () => {
    const gate = new EventEmitter();
    const worked: boolean[] = [];
    const work = {
      description: "Works.",
      inputSchema: EMPTY_OBJECT,
      execute: async (_args: unknown, { signal }: { readonly signal: AbortSignal }) => {
        gate.emit("begun");
        await once(gate, "open");
        worked.push(!signal.aborted);
        return "worked";
      },
    };
    const both = scriptedModel([{ toolCalls: [{ tool: "pay" }, { tool: "work" }] }, { text: "{tool_result}" }]);
    const options = { ...LONG, store: { path: await tempFolder() }, model, models: { both }, tools: { pay, work } };
    const first = await createTroupe(options);
    const working = once(gate, "begun");
    const [beside, alone] = [
      (await first.session("s")).turn("Both.", { model: "both" }),
      (await first.session("alone")).turn("Pay."),
    ];
    const suspended = refusalOf(beside);
    const { s: key = "" } = await keys(first, 2);
    await working;
    const closing = first.close();
    // By then it was looked for turns that only people can go on with.
    expect((await refusalOf(alone)).code).toBe("turn_suspended");
    gate.emit("open");
    await closing;
    expect((await suspended).code).toBe("turn_suspended");
    const troupe = await startTroupe(options);
    expect(await troupe.approve(key)).toBe("counted");
    await stored(await troupe.session("s"));
    expect(worked).toEqual([true]);
  });

  test("leaves a child's call that waits to the turn that waits for the child: that is kept, and told nothing of it", async () => {
    const store = { path: await tempFolder() };
    const hold = { description: "Asks.", inputSchema: EMPTY_OBJECT, execute: () => pendingTool() };
    const first = await createTroupe({ ...asking("inline", { tools: { hold } }), store, drainMs: 200 });
    const parent = await first.session("boss");
    await ask(parent, ["createSession", { sessionId: "boss/worker" }]);
    const turn = turnThatAsks(parent, ["startTurn", "boss/worker", told({ call: "hold" }, { say: "done" })]);
    const { "boss/worker": key } = await keys(first, 1);
    const suspended = refusalOf(turn);
    await first.close();
    expect((await suspended).code).toBe("turn_suspended");
    const troupe = await startTroupe({ ...asking("inline", { tools: { hold } }), store });
    expect((await keys(troupe, 1))["boss/worker"]).toBe(key);
  });
});
