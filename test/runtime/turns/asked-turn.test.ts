import { describe, expect, it } from "vitest";
import { deferred } from "../../../src/async/index.js";
import { NO_USAGE, TroupeError } from "../../../src/kernel/index.js";
import { AskedTurn, type TurnWorker } from "../../../src/runtime/turns/turns.js";
import type { TurnExtras, TurnReply } from "../../../src/session/index.js";

const REPLY: TurnReply = {
  sessionId: "s",
  turnId: "t",
  turnIndex: 0,
  revision: 1,
  outcome: { type: "finished", text: "hi" },
  text: "hi",
  usage: NO_USAGE,
  modelCalls: 1,
  modelCallRecords: [],
  toolCalls: [],
  issues: [],
};
const LOST = new TroupeError("worker_lost", "The session worker is gone.");
const REFUSED = new TroupeError("mailbox_full", "The session has too much to do.");

const ask = (extras?: TurnExtras) => new AskedTurn(7, "s", { text: "Hello", extras });

/** A worker that does what the test says, and a record of what was said on its lanes. */
function worker({ journals = true, up = true } = {}) {
  const said: unknown[] = [];
  let answer = deferred<TurnReply>();
  let started = deferred();
  const lane = {
    call: <T>(method: string, payload: unknown) => {
      said.push([method, payload]);
      return answer.promise as Promise<unknown> as Promise<T>;
    },
    note: (topic: string, payload: unknown) => void said.push([topic, payload]),
  };
  const state = { up, closed: false };
  const turnWorker: TurnWorker = {
    get lane() {
      return state.up ? lane : undefined;
    },
    ready: async () => {
      await started.promise;
      return lane;
    },
    get closed() {
      return state.closed;
    },
    journals,
  };
  return {
    turnWorker,
    said,
    finish: () => answer.resolve(REPLY),
    fail: (error: TroupeError) => answer.reject(error),
    /** The thread dies: what it was at is lost, and there is no lane until `restart`. */
    die() {
      state.up = false;
      const dying = answer;
      answer = deferred();
      dying.reject(LOST);
    },
    restart() {
      state.up = true;
      started.resolve();
      started = deferred();
    },
    close: () => {
      state.closed = true;
    },
  };
}

/** Lets every promise that can settle do so. */
const settled = () => new Promise(setImmediate);

describe("an asked turn", () => {
  it("is sent at once, silently when nobody listens, with no more in the call than there is to say", async () => {
    const { turnWorker, said, finish } = worker();
    const running = ask().run(turnWorker);
    expect(said).toEqual([["turn", [7, "s", "Hello", false]]]);
    finish();
    expect(await running).toBe(REPLY);
  });

  it("brings along what it was asked with", () => {
    const { turnWorker, said } = worker();
    void ask({ key: "k" }).run(turnWorker);
    expect(said).toEqual([["turn", [7, "s", "Hello", false, { key: "k" }]]]);
  });

  it("that somebody listens to before it is sent is sent so, and needs no word more", () => {
    const { turnWorker, said } = worker();
    const asked = ask();
    asked.listen();
    void asked.run(turnWorker);
    asked.listen();
    expect(said).toEqual([["turn", [7, "s", "Hello", true]]]);
  });

  it("that was sent is made to speak once, however many listen", () => {
    const { turnWorker, said } = worker();
    const asked = ask();
    void asked.run(turnWorker);
    asked.listen();
    asked.listen();
    expect(said).toEqual([
      ["turn", [7, "s", "Hello", false]],
      ["listen", 7],
    ]);
  });

  it("cancelled before it is sent is sent and cancelled right behind, for the first reason", () => {
    const { turnWorker, said } = worker();
    const asked = ask();
    asked.cancel({ reason: "first" });
    asked.cancel({ reason: "second" });
    void asked.run(turnWorker);
    expect(said).toEqual([
      ["turn", [7, "s", "Hello", false]],
      ["cancel", [7, { reason: "first" }]],
    ]);
  });

  it("cancelled when it was sent is cancelled once", () => {
    const { turnWorker, said } = worker();
    const asked = ask();
    void asked.run(turnWorker);
    asked.cancel({ reason: "first" });
    asked.cancel({ reason: "second" });
    expect(said).toEqual([
      ["turn", [7, "s", "Hello", false]],
      ["cancel", [7, { reason: "first" }]],
    ]);
  });

  it("whose worker restarts waits, and what its caller wants meanwhile goes with it", async () => {
    const { turnWorker, said, restart } = worker({ up: false });
    const asked = ask();
    void asked.run(turnWorker);
    asked.listen();
    asked.cancel({ reason: "The user left." });
    await settled();
    expect(said).toEqual([]);
    restart();
    await settled();
    expect(said).toEqual([
      ["turn", [7, "s", "Hello", true]],
      ["cancel", [7, { reason: "The user left." }]],
    ]);
  });

  it("that was refused is not sent again", async () => {
    const { turnWorker, said, fail } = worker();
    const running = ask().run(turnWorker);
    fail(REFUSED);
    await expect(running).rejects.toBe(REFUSED);
    expect(said).toHaveLength(1);
  });
});

describe("an asked turn whose worker is lost", () => {
  it("is over when turns are not written down", async () => {
    const { turnWorker, said, die } = worker({ journals: false });
    const running = ask().run(turnWorker);
    die();
    await expect(running).rejects.toBe(LOST);
    expect(said).toHaveLength(1);
  });

  it("is asked of the successor again, with what its caller wanted before and meanwhile", async () => {
    const { turnWorker, said, die, restart, finish } = worker();
    const asked = ask();
    const running = asked.run(turnWorker);
    asked.listen();
    die();
    await settled();
    asked.cancel({ reason: "The user left." });
    expect(said.splice(0)).toEqual([
      ["turn", [7, "s", "Hello", false]],
      ["listen", 7],
    ]);
    restart();
    await settled();
    expect(said).toEqual([
      ["turn", [7, "s", "Hello", true, undefined, true]],
      ["cancel", [7, { reason: "The user left." }]],
    ]);
    finish();
    expect(await running).toBe(REPLY);
  });

  it("tells every successor that it is to be cancelled", async () => {
    const { turnWorker, said, die, restart } = worker();
    const asked = ask();
    void asked.run(turnWorker);
    asked.cancel({ reason: "The user left." });
    for (const _ of [1, 2]) {
      die();
      await settled();
      said.length = 0;
      restart();
      await settled();
      expect(said).toEqual([
        ["turn", [7, "s", "Hello", false, undefined, true]],
        ["cancel", [7, { reason: "The user left." }]],
      ]);
    }
  });

  it("before it was sent is no turn to take up: it is sent for the first time", async () => {
    const { turnWorker, said, restart } = worker({ up: false });
    let lost = true;
    const flaky: TurnWorker = {
      ...turnWorker,
      lane: undefined,
      ready: async () => {
        if (lost) {
          lost = false;
          throw LOST;
        }
        return turnWorker.ready();
      },
    };
    void ask().run(flaky);
    await settled();
    restart();
    await settled();
    expect(said).toEqual([["turn", [7, "s", "Hello", false]]]);
  });

  it("is over when the runtime closes", async () => {
    const { turnWorker, die, close } = worker();
    const running = ask().run(turnWorker);
    close();
    die();
    await expect(running).rejects.toBe(LOST);
  });

  it("nine times is given up", async () => {
    const { turnWorker, said, die, restart } = worker();
    const running = ask().run(turnWorker);
    const ended = running.catch((error) => error);
    for (let death = 1; death <= 9; death++) {
      die();
      await settled();
      restart();
      await settled();
    }
    expect(await ended).toBe(LOST);
    expect(said).toHaveLength(9);
  });
});
