import { pendingTool, type Session, scriptedModel, type Troupe, type TroupeOptions } from "troupe";
import { expect, test } from "vitest";
import { EMPTY_OBJECT, RESIDENT, refusalOf, startTroupe, tempFolder, until } from "../../support/runtime.js";

const models = {
  json: scriptedModel({ turns: Array(9).fill([{ text: '{"n":1}' }]) }),
  holds: scriptedModel({ turns: Array(9).fill([{ toolCalls: [{ tool: "hold" }] }, { text: "done" }]) }),
};
const hold = { description: "Waits.", inputSchema: EMPTY_OBJECT, execute: () => pendingTool() };
const pay = { description: "Pays.", inputSchema: EMPTY_OBJECT, approval: true, execute: () => "paid" };
const model = scriptedModel({ turns: Array(9).fill([{ toolCalls: [{ tool: "pay" }] }, { text: "{tool_result}" }]) });
const FORM = { type: "object", properties: { n: { type: "number" } }, required: ["n"] } as const;

/** A turn up to its first call that waits: its key. */
async function waiting(session: Session, options = {}) {
  const turn = session.turn("go", options);
  turn.catch(() => undefined);
  for await (const activity of turn) if (activity.type === "tool_call_pending") return { turn, key: activity.key };
  throw new Error("Nothing waited.");
}
const listed = async (troupe: Troupe, state: "idle" | "unfinished" | "waiting") =>
  (await troupe.listSessions({ state })).sessions.length;

/** What the table of docs/turns.md says of it. */
interface Row {
  readonly journals: boolean;
  readonly options: () => Promise<TroupeOptions>;
}
const TABLE: readonly (readonly [string, Row])[] = [
  ["on disk", { journals: true, options: async () => ({ store: { path: await tempFolder() } }) }],
  ["in memory with a journal", { journals: true, options: async () => ({ store: { memory: true }, journal: true }) }],
  [
    "on disk without a journal",
    { journals: false, options: async () => ({ store: { path: await tempFolder() }, journal: false }) },
  ],
  ["in memory", { journals: false, options: async () => ({ store: { memory: true } }) }],
];

test.each(TABLE)("what docs/turns.md says of a runtime %s is so", async (_name, { journals, options }) => {
  const troupe = await startTroupe({
    model,
    models,
    tools: { hold, pay },
    sessionWorkers: 1,
    ...RESIDENT,
    ...(await options()),
  });
  const session = await troupe.session("s");
  await session.turn("first", { model: "json" });

  const asked = await waiting(session);
  expect([(await troupe.pending()).calls.length, (await session.view()).running?.pending.length]).toEqual([1, 1]);
  expect([await listed(troupe, "waiting"), await listed(troupe, "idle")]).toEqual(journals ? [1, 0] : [0, 1]);
  await troupe.kill({ sessionWorker: 0 });
  await until("the worker is there again", async () => (await session.info()).threadId > 0);
  const answers = journals ? "counted" : "moved_on";
  expect(await troupe.approve(asked.key)).toBe(answers);
  if (journals) expect((await asked.turn).text).toBe("paid");
  else expect((await refusalOf(asked.turn)).code).toBe("worker_lost");

  // The same in all of them.
  const { value, turnId } = await session.turn("count", { model: "json", output: FORM, key: "k" });
  expect([value, (await session.turnResult(turnId)).text]).toEqual([{ n: 1 }, '{"n":1}']);
  await troupe.kill({ sessionWorker: 0 });
  expect((await session.turn("count", { model: "json", output: FORM, key: "k" })).turnId).toBe(turnId);
  const stopped = await waiting(session, { model: "holds" });
  expect(await session.cancel("enough")).toBe("cancelled");
  expect((await stopped.turn).outcome).toMatchObject({ reason: "cancelled" });
  const [question] = (await session.tree()).filter(({ active, role }) => active && role === "user");
  expect(await session.rewind(question?.parent ?? null)).toMatchObject({ messageCount: 0 });
  expect(await troupe.has("s")).toBe(true);

  const left = await waiting(session, { model: "holds" });
  await troupe.close();
  if (journals) expect((await refusalOf(left.turn)).code).toBe("turn_suspended");
  else expect((await left.turn).outcome).toMatchObject({ reason: "cancelled" });
});
