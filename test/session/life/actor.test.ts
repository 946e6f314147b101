import { describe, expect, test } from "vitest";
import { deferred } from "../../../src/async/index.js";
import { TroupeError } from "../../../src/kernel/index.js";
import { definePlugin } from "../../../src/plugin/index.js";
import { openSession } from "../../../src/session/life/open-session.js";
import { compactSession } from "../../../src/session/life/requests.js";
import { viewOf } from "../../../src/session/state/session.js";
import { openActor, servicesOf, unheard } from "./memory-actor.js";

/** A plugin whose turns wait at their beginning until they are let through. */
function gate() {
  const reached = deferred();
  const passed = deferred();
  const plugin = definePlugin({
    id: "test.gate",
    version: "1.0.0",
    hooks: {
      beforeTurn: async () => {
        reached.resolve();
        await passed.promise;
        return [];
      },
    },
  });
  return { plugins: [plugin], reached: reached.promise, pass: () => passed.resolve() };
}

const codeOf = (promise: Promise<unknown>) =>
  promise.then(
    () => "resolved",
    (error: unknown) => (error instanceof TroupeError ? error.code : String(error)),
  );

describe("mail", () => {
  test("what is asked for while the session opens is done in order, once it is open", async () => {
    const actor = openActor(await servicesOf());
    expect(actor.state).toBe("opening");
    const turns = ["one", "two", "three"].map((input) => actor.turn(input, unheard));
    expect((await Promise.all(turns)).map(({ text, turnIndex }) => [turnIndex, text])).toEqual([
      [1, "You said: one"],
      [2, "You said: two"],
      [3, "You said: three"],
    ]);
    expect(actor.state).toBe("idle");
  });

  test("a full mailbox refuses and drops nothing; what runs, and what will run first, does not count", async () => {
    const actor = openActor(await servicesOf(), { mailboxLimit: 2 });
    const taken = ["one", "two", "three"].map((input) => actor.turn(input, unheard));
    expect(await codeOf(actor.turn("four", unheard))).toBe("mailbox_full");
    expect((await Promise.all(taken)).map(({ turnIndex }) => turnIndex)).toEqual([1, 2, 3]);
    const { plugins, reached, pass } = gate();
    const busy = openActor(await servicesOf({ plugins }), { mailboxLimit: 1 });
    const running = busy.turn("one", unheard);
    await reached;
    const waiting = busy.turn("two", unheard);
    expect(await codeOf(busy.turn("three", unheard))).toBe("mailbox_full");
    pass();
    expect((await Promise.all([running, waiting])).map(({ turnIndex }) => turnIndex)).toEqual([1, 2]);
  });

  test("a call that fails does not keep the next from its place", async () => {
    const actor = openActor(await servicesOf());
    const [refused, next] = [actor.turn("hi", unheard, { model: "none" }), actor.turn("hi", unheard)];
    expect(await codeOf(refused)).toBe("model_unknown");
    expect((await next).turnIndex).toBe(1);
  });

  test("a session that cannot be opened refuses everything with the reason", async () => {
    const error = new TroupeError("plugin_state_incompatible", "Another version wrote it.");
    let ended = 0;
    const actor = openActor(await servicesOf(), { open: () => Promise.reject(error), onEnded: () => ended++ });
    const asked = [
      actor.opened(),
      actor.turn("hi", unheard),
      actor.perform("compact", (session) => compactSession(session, null)),
    ];
    expect(await Promise.all(asked.map(codeOf))).toEqual(Array(3).fill("plugin_state_incompatible"));
    await actor.ended();
    expect([actor.state, actor.failure, ended]).toEqual(["failed", error, 1]);
    expect(await codeOf(actor.turn("hi", unheard))).toBe("plugin_state_incompatible");
  });
});

describe("parking", () => {
  test("a session that is to be parked is parked when its work is done, and says so once", async () => {
    const { plugins, reached, pass } = gate();
    let ended = 0;
    const actor = openActor(await servicesOf({ plugins }), { onEnded: () => ended++ });
    const turn = actor.turn("hi", unheard);
    await reached;
    const parked = actor.parked();
    expect(actor.state).toBe("running");
    pass();
    await turn;
    await parked;
    expect([actor.state, actor.failure, ended]).toEqual(["parked", undefined, 1]);
    expect(await codeOf(actor.turn("again", unheard))).toBe("session_closed");
  });

  test("who comes while the session is being stored keeps it, and who asked for it to be parked has it parked behind that", async () => {
    const actor = openActor(await servicesOf());
    await actor.opened();
    const parked = actor.parked();
    expect(actor.state).toBe("parking");
    const turn = actor.turn("hi", unheard);
    expect((await turn).turnIndex).toBe(1);
    await parked;
    expect(actor.state).toBe("parked");
  });

  test("a session that somebody holds is not parked before it is let go", async () => {
    const actor = openActor(await servicesOf());
    actor.hold();
    await actor.opened();
    const parked = actor.parked();
    expect(actor.state).toBe("idle");
    actor.letGo();
    expect(actor.state).toBe("parking");
    await parked;
  });

  test("a session whose plugin's state cannot be captured stays, and whoever waits is told why", async () => {
    const shared = await servicesOf({
      plugins: [
        definePlugin({
          id: "test.uncapturable",
          version: "1.0.0",
          // A function cannot be stored.
          state: () => ({ greet: () => "hello" }),
          hooks: { beforeTurn: () => [] },
        }),
      ],
    });
    const actor = openActor(shared);
    await actor.turn("hi", unheard);
    expect(await codeOf(actor.parked())).not.toBe("resolved");
    expect(actor.state).toBe("idle");
    expect((await actor.turn("still there", unheard)).turnIndex).toBe(2);
  });
});

describe("leaving", () => {
  test("a session that leaves finishes what is queued and takes nothing more", async () => {
    const actor = openActor(await servicesOf());
    const queued = [actor.turn("one", unheard), actor.turn("two", unheard)];
    actor.leave();
    expect(await codeOf(actor.turn("three", unheard))).toBe("session_closed");
    expect((await Promise.all(queued)).map(({ turnIndex }) => turnIndex)).toEqual([1, 2]);
    await actor.ended();
    expect(actor.state).toBe("parked");
  });
});

describe("a session whose write failed", () => {
  test("beside a turn ends when nobody holds it any more: the next message opens it anew", async () => {
    const shared = await servicesOf({ failing: 2 });
    const actor = openActor(shared);
    await actor.turn("hi", unheard);
    actor.hold();
    const session = await actor.opened();
    expect(await codeOf(session.spending.set({ maxTokens: 10 }))).toBe("store_write_failed");
    expect(actor.state).toBe("idle");
    actor.letGo();
    expect(actor.state).toBe("stale");
    await actor.ended();
    expect(actor.failure).toMatchObject({ code: "session_stale", retryable: true });
    expect((await openActor(shared).turn("again", unheard)).turnIndex).toBe(2);
  });

  test("in a turn refuses what waits behind it as stale", async () => {
    const shared = await servicesOf({ failing: 1 });
    const actor = openActor(shared);
    const [first, second] = [actor.turn("one", unheard), actor.turn("two", unheard)];
    expect([await codeOf(first), await codeOf(second)]).toEqual(["store_write_failed", "session_stale"]);
    expect(actor.state).toBe("stale");
  });
});

test("a session rests once for everything that was asked of it at once", async () => {
  let rests = 0;
  const actor = openActor(await servicesOf(), { onRest: () => rests++ });
  await Promise.all([actor.turn("one", unheard), actor.turn("two", unheard)]);
  expect(rests).toBe(1);
  actor.hold();
  actor.hold();
  actor.letGo();
  expect(rests).toBe(1);
  actor.letGo();
  expect(rests).toBe(2);
});

test("a session sees its turn run, and no longer when it is stored and told of", async () => {
  const { plugins, reached, pass } = gate();
  const shared = await servicesOf({ plugins });
  const actor = openActor(shared, { open: (chart) => openSession(shared, "s", { chart, take: "always" }) });
  const session = await actor.opened();
  const turn = actor.turn("hi", unheard);
  await reached;
  expect([session.life.now, (await viewOf(session)).running]).toEqual([{ kind: "running", turnId: "t1" }, true]);
  pass();
  await turn;
  expect([session.life.now, (await viewOf(session)).running]).toEqual([{ kind: "idle" }, false]);
});
