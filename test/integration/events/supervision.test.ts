import { type Session, scriptedModel, type TroupeEvent } from "troupe";
import { expect, test } from "vitest";
import { counted, gates } from "../../support/journaled.js";
import { listening } from "../../support/listening.js";
import {
  fixture,
  PATIENT,
  plugin,
  RESIDENT,
  refusalOf,
  remembering,
  startTroupe,
  tempFolder,
  until,
} from "../../support/runtime.js";

/** An event's own fields, without when it happened and on which thread. */
const plain = ({ at: _at, thread: _thread, ...fields }: TroupeEvent) => fields;

async function refused(times: number, session: Session, input: string): Promise<void> {
  for (let n = 0; n < times; n++) await refusalOf(session.turn(input));
}

test("a session that ends its plugin's thread three times is told once as quarantined and once as refused, each lost thread once, and no word of what was said", async () => {
  const { onEvent, events, of } = listening();
  const troupe = await startTroupe({
    ...RESIDENT,
    onEvent,
    sessionWorkers: 1,
    plugins: [{ module: plugin("offends"), deadlineMs: 600_000, blockedMs: 1_000 }],
  });
  const [bad, stuck, good] = await Promise.all(["bad", "stuck", "good"].map((id) => troupe.session(id)));
  await good?.turn("hi");
  // The fourth is refused without being made: nothing more happens.
  await refused(4, bad as Session, "exit secret-word");
  await refused(1, stuck as Session, "spin secret-word");
  expect((await good?.turn("hi"))?.outcome.type).toBe("finished");
  const restarts = async () => (await troupe.stats()).plugins[0]?.restarts;
  await until("every restart is told", async () => of("plugin_restarted").length === (await restarts()));
  await troupe.close();

  const where = { plugin: "test.offends", count: 1 };
  const lost = { type: "plugin_lost", ...where, held: true, reason: "exit" };
  expect(of("plugin_lost").map(plain)).toEqual([lost, lost, lost]);
  expect(of("plugin_blocked").map(plain)).toEqual([{ type: "plugin_blocked", ...where, held: true }]);
  expect(of("session_quarantined").map(plain)).toEqual([
    expect.objectContaining({ type: "session_quarantined", ...where, session: "bad", offences: 2 }),
  ]);
  expect(of("session_refused").map(plain)).toEqual([
    expect.objectContaining({ type: "session_refused", ...where, session: "bad", offences: 3, forMs: 30_000 }),
  ]);
  expect(of("plugin_restarted").map((event) => event.restarts)).toEqual(of("plugin_restarted").map((_, n) => n + 1));
  expect(of("plugin_restarted").length).toBeGreaterThanOrEqual(2);
  expect(JSON.stringify(events)).not.toContain("secret-word");
});

test("a hook that hangs for one session is told once when its breaker opens and once when it closes; a promise nobody handles once, with its plugin", async () => {
  const { onEvent, of } = listening();
  const guard = fixture("events/faulty.mjs");
  const troupe = await startTroupe({
    ...RESIDENT,
    onEvent,
    sessionWorkers: 1,
    plugins: [
      remembering(plugin("hangs"), { deadlineMs: 500 }),
      { module: guard, options: { sessions: "floats", beforeTurn: { floats: "nobody waits" } }, ...PATIENT },
    ],
  });
  const [slow, floats] = await Promise.all(["slow", "floats"].map((id) => troupe.session(id)));
  // The first call has to wait for its thread to get ready.
  await slow?.query("hangs.asked");
  await refused(6, slow as Session, "hang");
  // On a slow machine its own call may miss the deadline too.
  await until("another session's turn finishes", () =>
    (floats as Session).turn("hi").then(
      () => true,
      () => false,
    ),
  );
  await until("the rejection is told", () => of("floating_rejection").length > 0);
  await troupe.close();

  expect(of("breaker_opened").map(plain)).toEqual([
    expect.objectContaining({
      plugin: "test.hangs",
      hook: "beforeTurn",
      session: "slow",
      timeouts: 5,
      forMs: 5_000,
      count: 1,
    }),
  ]);
  expect(of("breaker_closed").map(plain)).toEqual([
    { type: "breaker_closed", plugin: "test.hangs", hook: "beforeTurn", openMs: expect.any(Number), count: 1 },
  ]);
  expect(of("floating_rejection")).toMatchObject([{ plugin: "acme.guard", owner: guard.href, count: 1 }]);
  expect(of("floating_rejection")[0]?.error.cause?.message).toBe("nobody waits");
});

test("a session worker that dies in the middle of a journaled turn is told once as lost and once as replaced, and the turn once as taken up again", async () => {
  const { onEvent, events, of } = listening();
  const gate = gates();
  const { start } = await counted({ onEvent, tools: { wait: gate.tool("wait") } });
  const troupe = await start();
  const session = await troupe.session("chat-42", { tenant: "acme" });
  const turn = session.turn("wait secret-word");
  await until("the tool runs", () => gate.calls.length === 1);
  await troupe.kill({ sessionWorker: 0 });
  await until("the tool runs again", () => gate.calls.length === 2);
  gate.open("wait");
  expect((await turn).outcome.type).toBe("finished");
  await troupe.close();

  // A busy disk may be slow.
  const told = events.map(({ type }) => type).filter((type) => type !== "store_slow");
  expect(told.sort()).toEqual(["session_worker_lost", "session_worker_replaced", "turn_resumed"]);
  expect(of("session_worker_lost")).toMatchObject([{ thread: "Session worker 0", reason: "asked" }]);
  expect(of("session_worker_replaced")).toMatchObject([{ thread: "Session worker 0", restarts: 1 }]);
  expect(of("turn_resumed").map(plain)).toEqual([
    { type: "turn_resumed", session: "chat-42", tenant: "acme", turn: "t1", times: 0, replaying: true, count: 1 },
  ]);
  expect(JSON.stringify(events)).not.toContain("secret-word");
});

test("a plugin that cannot be started again is told once as given up, and a call of the model that is made again once", async () => {
  const { onEvent, first, of } = listening();
  const troupe = await startTroupe({
    onEvent,
    sessionWorkers: 1,
    plugins: [
      {
        module: plugin("loads-once"),
        permissions: "all",
        options: { marker: `${await tempFolder()}/loaded` },
        optional: true,
        ...PATIENT,
      },
    ],
    model: scriptedModel({ id: "flaky", turns: [[{ text: "Hello.", fail: { status: 503, attempts: 1 } }]] }),
    modelRetry: { baseDelayMs: 1 },
  });
  const session = await troupe.session("chat-42");
  expect((await session.turn("my card is secret-word")).text).toBe("Hello.");
  await troupe.kill({ plugin: "test.loads-once" });
  await first("plugin_given_up");
  await troupe.close();
  expect(of("plugin_given_up")).toMatchObject([
    { plugin: "test.loads-once", count: 1, error: { code: "plugin_unavailable" } },
  ]);
  expect(of("model_retry").map(plain)).toMatchObject([
    { session: "chat-42", turn: "t1", model: "flaky", step: 0, attempt: 1, code: "model_server_error", count: 1 },
  ]);
});
