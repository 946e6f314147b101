import { MessageChannel, type MessagePort } from "node:worker_threads";
import { describe, expect, test } from "vitest";
import { systemClock } from "../../src/async/index.js";
import { decodeError, fateOf, Lane, newStage, StageWriter } from "../../src/wire/index.js";

/** A lane whose other end is in the test's hands. */
function foreignLane(): { lane: Lane; peer: MessagePort; lost: Promise<string> } {
  const { port1, port2 } = new MessageChannel();
  let lane: Lane | undefined;
  const lost = new Promise<string>((resolve) => {
    lane = new Lane(port1, {
      name: "Plugin x",
      clock: systemClock,
      foreign: true,
      onLost: ({ code }) => resolve(code),
      onNote: () => {
        throw new TypeError("There are no notes here.");
      },
    });
  });
  return { lane: lane as Lane, peer: port2, lost };
}

const HUGE: unknown[] = [];
HUGE.length = 2 ** 32 - 4;

describe("a message of foreign code that is none of a lane's loses the lane and rejects its calls", () => {
  test.each<[string, unknown]>([
    ["null", null],
    ["a number", 7],
    ["an object that says it is endless", { length: Number.POSITIVE_INFINITY }],
    ["a list of four thousand million places", HUGE],
    ["a list that breaks off in an entry", [1, 2, 3]],
    ["an entry of no known kind", [99, 1, 0, 0]],
    ["a note nobody takes", [4, 0, "x", 0]],
  ])("when it is %s", async (_, message) => {
    const { lane, peer, lost } = foreignLane();
    const call = lane.call("hook", 1).catch(({ code }) => code);
    peer.postMessage(message);
    expect(await lost).toBe("wire_corrupt");
    expect(await call).toBe("wire_corrupt");
    peer.close();
  });

  test("but a failure in a form that cannot be read fails its own call only", async () => {
    const { lane, peer } = foreignLane();
    const call = lane.call("hook", 1).catch(({ code }) => code);
    peer.postMessage([2, 1, 0, null]);
    expect(await call).toBe("wire_corrupt");
    expect(lane.lost).toBe(false);
    lane.close();
    peer.close();
  });
});

describe("an error from another thread", () => {
  test("that is its own cause is read to a bounded depth", () => {
    const cyclic: Record<string, unknown> = { name: "Error", message: "again" };
    cyclic.cause = cyclic;
    let depth = 0;
    for (let error: unknown = decodeError(cyclic); error instanceof Error; error = error.cause) depth++;
    expect(depth).toBeLessThan(12);
  });

  test("with a message of a million characters is cut, and says by how much", () => {
    const { message } = decodeError({ name: "Error", message: "x".repeat(1_000_000) });
    expect(message.length).toBeLessThan(66_000);
    expect(message).toMatch(/934464 characters left out/);
  });
});

describe("how far a call came on a thread that is gone", () => {
  test("is held, begun or unstarted by what the thread wrote down", () => {
    const cells = newStage();
    const started = new Int32Array(new SharedArrayBuffer(4));
    const writer = new StageWriter(cells);
    writer.enter(1, started, 5);
    writer.leave();
    writer.enter(1, started, 6);
    const view = { cells, lane: 1, started };
    expect([5, 6, 7].map((call) => fateOf(view, call))).toEqual(["begun", "held", "unstarted"]);
    // The same number on another lane is another call.
    expect(fateOf({ ...view, lane: 2 }, 6)).toBe("begun");
    writer.leave();
    expect(fateOf(view, 6)).toBe("begun");
  });
});
