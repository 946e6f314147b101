import { createTroupe, pendingTool, type Session, scriptedModel, type Troupe } from "troupe";
import { afterAll, beforeAll, expect, test } from "vitest";
import { EMPTY_OBJECT, refusalOf, startTroupe, until } from "../../support/runtime.js";

/** What a host does with turns and sessions every day, each with something it cannot use. */
let troupe: Troupe;
let session: Session;
let key: string;

beforeAll(async () => {
  troupe = await createTroupe({
    sessionWorkers: 1,
    drainMs: 1,
    journal: true,
    model: scriptedModel([{ toolCalls: [{ tool: "ask" }] }, { text: "Done." }]),
    tools: { ask: { description: "Asks.", inputSchema: EMPTY_OBJECT, execute: () => pendingTool() } },
    tenantBudgets: {},
  });
  session = await troupe.session("s", { tenant: "acme" });
  session.turn("go").catch(() => undefined);
  await until("a call waits", async () => (await troupe.pending()).calls.length === 1);
  key = (await troupe.pending()).calls[0]?.key as string;
});
afterAll(() => troupe?.close());

const CALLS: readonly (readonly [what: string, call: () => unknown, code: string, says: string])[] = [
  [
    "turnResult of a number",
    () => session.turnResult(1 as never),
    "turn_unknown",
    "A turn's id is a text, such as t1.",
  ],
  [
    "turnResult with null",
    () => session.turnResult("t1", null as never),
    "invalid_options",
    "the options of turnResult are an object.",
  ],
  [
    "turnResult with an option that there is not",
    () => session.turnResult("t1", { sgnal: AbortSignal.abort() } as never),
    "invalid_options",
    'turnResult has no option "sgnal". Did you mean "signal"?',
  ],
  [
    "turnResult with a signal that is none",
    () => session.turnResult("t1", { signal: {} } as never),
    "invalid_options",
    "the signal of turnResult must be an AbortSignal.",
  ],
  [
    "steer with null",
    () => session.steer("x", null as never),
    "invalid_options",
    "the options of an input are an object.",
  ],
  [
    "steer to a checkpoint that there is not",
    () => session.steer("x", { boundary: "soon" } as never),
    "invalid_options",
    'the boundary of an input is "after_work" or "before_completion".',
  ],
  [
    "enqueue with an option of steer",
    () => session.enqueue("x", { boundary: "after_work" } as never),
    "invalid_options",
    'an input has no option "boundary". There are: key.',
  ],
  [
    "enqueue under a number",
    () => session.enqueue("x", { key: 7 } as never),
    "invalid_options",
    "for an input, key is a string of 1 to 256 characters.",
  ],
  [
    "a turn with no time",
    () => session.turn("x", { deadlineMs: 0 }),
    "invalid_turn_options",
    "The turn's options cannot be used: deadlineMs is a whole number of milliseconds from 1, or null.",
  ],
  [
    "a turn whose time counts waiting with a word",
    () => session.turn("x", { deadlineCountsWaiting: "yes" } as never),
    "invalid_turn_options",
    "The turn's options cannot be used: deadlineCountsWaiting is true or false.",
  ],
  [
    "rewind without a node",
    () => (session.rewind as () => Promise<unknown>).call(session),
    "node_unknown",
    "A session is rewound to a node of its tree, or to null, not to undefined.",
  ],
  [
    "listSessions of nothing",
    () => troupe.listSessions(null as never),
    "invalid_list",
    "Sessions cannot be listed: what is asked for is an object.",
  ],
  [
    "listSessions by a function",
    () => troupe.listSessions({ prefix: () => "chat/" } as never),
    "invalid_list",
    "Sessions cannot be listed: prefix is a text of up to 300 characters.",
  ],
  [
    "pending of nothing",
    () => troupe.pending(null as never),
    "invalid_list",
    "Calls that wait cannot be listed: what is wanted is an object with sessionId, tenant, after or limit.",
  ],
  [
    "pending by a function",
    () => troupe.pending({ tenant: () => "acme" } as never),
    "invalid_list",
    "Calls that wait cannot be listed: tenant is a text that is not empty, of up to 2000 characters.",
  ],
  [
    "has of a number",
    () => troupe.has(7 as never),
    "invalid_session_id",
    "A session id must be 1 to 256 printable characters: got number.",
  ],
  [
    "cancelTurn for a number",
    () => troupe.cancelTurn("s", "t1", 7 as never),
    "invalid_options",
    "the reason of a cancellation is a text of at most 4096 characters.",
  ],
  [
    "cancelTurn with null",
    () => troupe.cancelTurn("s", "t1", "x", null as never),
    "invalid_options",
    "the options of a cancellation are an object.",
  ],
  [
    "a yes with null",
    () => troupe.approve(key, null as never),
    "answer_unusable",
    "The call cannot be answered so: an approval takes an object, such as { args }.",
  ],
  [
    "a yes for a session that is a number",
    () => troupe.approve(key, { sessionId: 7 } as never),
    "invalid_session_id",
    "A session id must be 1 to 256 printable characters: got number.",
  ],
  [
    "a no without anything",
    () => (troupe.deny as (key: string) => Promise<unknown>).call(troupe, key),
    "answer_unusable",
    "The call cannot be answered so: a denial takes an object, such as { reason }.",
  ],
  [
    "a budget of a tenant that is a number",
    () => troupe.setTenantBudget(7 as never, null),
    "invalid_options",
    "tenant is a text of 1 to 128 characters without control characters.",
  ],
  [
    "the spending of a tenant without a name",
    () => troupe.tenantSpending(""),
    "invalid_options",
    "tenant is a text of 1 to 128 characters without control characters.",
  ],
  [
    "shared state of no plugin",
    () => troupe.shared.get(undefined as never, "acme"),
    "invalid_options",
    "pluginId must be a text.",
  ],
  [
    "a page of shared state with null",
    () => troupe.shared.list("acme.limit", null as never),
    "invalid_options",
    "what is listed is an object with after and limit.",
  ],
  [
    "a page of shared state by a filter that there is not",
    () => troupe.shared.list("acme.limit", { prefix: "a" } as never),
    "invalid_options",
    'a page of shared state has no field "prefix". There are: after, limit.',
  ],
];

test.each(CALLS)("a host's call is refused in its own words: %s", async (_what, call, code, message) => {
  expect(await refusalOf(Promise.resolve().then(call))).toMatchObject({ code, message });
});

test("what was refused changed nothing: the call still waits, and no input does", async () => {
  for (const [, call] of CALLS)
    await Promise.resolve()
      .then(call)
      .catch(() => undefined);
  expect([(await troupe.pending()).calls.length, (await session.inputs()).length]).toEqual([1, 0]);
  expect((await session.view()).running?.turnId).toBe("t1");
});

test("a runtime that is closed refuses each of them as closed", async () => {
  const gone = await startTroupe({ sessionWorkers: 1, tenantBudgets: {} });
  const left = await gone.session("s");
  await gone.close();
  const calls: readonly (() => unknown)[] = [
    () => left.turn("x"),
    () => left.cancel(),
    () => left.steer("x"),
    () => left.enqueue("x"),
    () => left.view(),
    () => left.turnResult("t1"),
    () => left.rewind(null),
    () => gone.cancelTurn("s", "t1"),
    () => gone.pending(),
    () => gone.approve(key),
    () => gone.deny(key, { reason: "No." }),
    () => gone.completeTool(key, { value: 1 }),
    () => gone.listSessions(),
    () => gone.has("s"),
    () => gone.setTenantBudget("acme", null),
    () => gone.tenantSpending("acme"),
    () => gone.shared.get("p", "k"),
    () => gone.shared.list("p"),
    () => gone.shared.delete("p", "k"),
  ];
  const codes = await Promise.all(calls.map(async (call) => (await refusalOf(Promise.resolve().then(call))).code));
  expect(codes).toEqual(calls.map(() => "closed"));
});
