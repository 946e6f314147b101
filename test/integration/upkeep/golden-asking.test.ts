import { cpSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { verifyStore } from "troupe";
import { expect, test } from "vitest";
import { fixture, startTroupe, tempFolder, until } from "../../support/runtime.js";

const QUESTION = { kind: "approval", question: "May I?" };

/** As the release had it that brought approvals; see test/store/fixtures/make-golden-asking.mjs. */
const FIRST = {
  key: expect.stringMatching(/^wait_[A-Za-z0-9_-]+$/),
  sessionId: "first",
  turnId: "t1",
  callId: expect.stringMatching(/^call_[0-9a-f]{32}$/),
  toolName: "pay",
  args: { amount: 6 },
  announcement: QUESTION,
  allowEdit: true,
  since: expect.any(Number),
};
const KNOWN = { ...FIRST, sessionId: "known", tenant: "acme", turnId: "t2", args: { amount: 5 } };

/** A runtime of another prompt, whose plugin would ask nobody any more, over a copy of the golden store. */
async function started() {
  const path = join(await tempFolder(), "store");
  cpSync(fileURLToPath(new URL("../../store/fixtures/golden-v3-asking", import.meta.url)), path, { recursive: true });
  const done: string[] = [];
  const tool = (name: string) => ({
    description: name,
    inputSchema: { type: "object" },
    execute: (args: unknown) => {
      done.push(`${name} ${JSON.stringify(args)}`);
      return `${name} done`;
    },
  });
  const troupe = await startTroupe({
    sessionWorkers: 1,
    store: { path },
    model: fixture("models/obeys.mjs"),
    instructions: "After.",
    plugins: [{ module: new URL(`${fixture("plugins/guards.mjs")}?id=guard`), tier: "inline", options: [] }],
    tools: { pay: tool("pay"), lend: tool("lend"), dig: tool("dig") },
  });
  const endOf = async (id: string, turns: number) => {
    const session = await troupe.session(id);
    await until(`${id} is stored`, async () => (await session.info()).turns === turns);
    return { session, result: await session.turnResult(`t${turns}`) };
  };
  return { troupe, path, done, endOf };
}

test("calls that wait for a yes in a stored session, and in one whose first turn they are of, are listed, answered and run", async () => {
  const { troupe, path, done, endOf } = await started();
  const calls = (await troupe.pending()).calls.filter(({ sessionId }) => sessionId !== "late");
  expect(calls).toEqual([KNOWN, FIRST]);
  expect((await troupe.pending({ tenant: "acme" })).calls).toEqual([KNOWN]);
  const { running } = await (await troupe.session("first")).view();
  expect(running).toMatchObject({ turnId: "t1", step: 1, pending: [{ key: calls[1]?.key }] });
  expect(await troupe.approve(calls[0]?.key as string)).toBe("counted");
  expect(await troupe.approve(calls[1]?.key as string, { args: { amount: 50 } })).toBe("counted");

  const [known, first] = [await endOf("known", 2), await endOf("first", 1)];
  expect(done.sort()).toEqual(['pay {"amount":50}', 'pay {"amount":5}'].sort());
  // Hooks look at what a yes came with, and at nothing again.
  expect(await known.session.query("guard.looked")).toEqual([5]);
  expect(await first.session.query("guard.looked")).toEqual([6, 50]);
  expect(JSON.parse(known.result.text)).toEqual({
    system: expect.stringContaining("Before."),
    conversation: [
      ["user", "say hello"],
      ["assistant", "hello"],
      ["user", 'call pay {"amount":5}\nend'],
      ["assistant", "[tool_call]"],
      ["tool", "pay done"],
    ],
    tools: ["dig", "lend", "pay"],
  });
  expect(JSON.parse(first.result.text).system).toContain("Before.");
  await endOf("late", 1);
  expect((await troupe.pending()).calls).toEqual([]);
  await troupe.close();
  const { file, sessions, others } = verifyStore(path);
  expect([...file, ...sessions.flatMap(({ findings }) => findings), ...others]).toEqual([]);
});

test("a call whose time for a yes ran out while no process was there is not run, and is listed no more", async () => {
  const { troupe, done, endOf } = await started();
  const { result } = await endOf("late", 1);
  expect(JSON.parse(result.text).conversation.at(-1)).toEqual([
    "tool",
    expect.stringContaining("tool_completion_timeout: lend was not approved within 10000 ms."),
  ]);
  expect(done).toEqual([]);
  expect((await troupe.pending({ sessionId: "late" })).calls).toEqual([]);
});

test("a turn of a stored session that was cancelled before its process was killed ends cancelled, and does nothing again", async () => {
  const { done, endOf } = await started();
  const { result } = await endOf("stopped", 1);
  expect(result).toMatchObject({
    outcome: { type: "stopped", reason: "cancelled", message: "Enough." },
    modelCalls: 1,
    toolCalls: [{ toolName: "dig", output: { status: "cancelled" } }],
  });
  expect(done).toEqual([]);
});
