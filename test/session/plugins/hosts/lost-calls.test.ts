import { expect, test } from "vitest";
import type { HostLink, OrphanOf, Placed } from "../../../../src/session/plugins/hosts/host-link.js";
import { LostCalls } from "../../../../src/session/plugins/hosts/lost-calls.js";
import { newStage, setEndedBy } from "../../../../src/wire/index.js";
import { ManualClock } from "../../../support/manual-clock.js";

/** A call (a `capture`, unless said) of one session's plugin, lost so often; `inTime`: its first deadline is not over. */
async function lost(times: number, { inTime = true, fate = "begun", method = "capture" } = {}) {
  const stage = newStage();
  setEndedBy(stage, "heap");
  const placed = { slot: { number: 1, sessionId: "s1" }, member: 0 } as Placed;
  let made = 0;
  const again = () => {
    if (inTime) made++;
    return inTime;
  };
  const calls = new LostCalls({
    name: "Plugin acme.notes",
    clock: new ManualClock(),
    links: [{ manifest: { id: "acme.notes" } as never }],
    services: { again: () => undefined },
    placedAt: () => placed,
    settled: async () => ({ again }) as unknown as HostLink,
  });
  const payload = [1, 1];
  const errors: Error[] = [];
  for (let n = 0; n < times; n++) {
    const orphan = { method, payload, options: {}, fate, placed, expiresAt: undefined };
    calls.again({ ...orphan, resolve: () => undefined, reject: (error) => errors.push(error) } as OrphanOf, stage);
    await new Promise(setImmediate);
  }
  return { made, errors };
}

test("a call that had begun on a thread that was lost is made again twice", async () => {
  expect(await lost(2)).toEqual({ made: 2, errors: [] });
});

test("a call whose thread was lost a third time fails with the plugin, the call and what ended the thread", async () => {
  const { made, errors } = await lost(3);
  expect(made).toBe(2);
  expect(errors).toMatchObject([
    {
      code: "worker_lost",
      retryable: true,
      message:
        "Plugin acme.notes used more heap than its heapMb while this capture was under way. The call was made 3 times, each time on a thread that was lost, and is not made again.",
      details: { pluginId: "acme.notes", call: "capture", sessionId: "s1", reason: "heap", made: 3 },
    },
  ]);
});

test("a call whose deadline is over when its thread is lost fails with the plugin and what ended the thread", async () => {
  const { errors } = await lost(1, { inTime: false });
  expect(errors).toMatchObject([{ code: "worker_lost", details: { pluginId: "acme.notes", reason: "heap", made: 1 } }]);
});

test("a call that was never begun is sent eight times more, and fails when its thread is lost once more", async () => {
  expect(await lost(8, { fate: "unstarted" })).toEqual({ made: 8, errors: [] });
  const { made, errors } = await lost(9, { fate: "unstarted" });
  expect([made, errors.length]).toEqual([8, 1]);
  expect(errors).toMatchObject([{ code: "worker_lost", details: { made: 9 } }]);
});

test.each(["tool", "operation"])(
  "a %s that had begun on a thread that was lost is not run again, and says that it may have done its work",
  async (method) => {
    const { made, errors } = await lost(1, { method });
    expect(made).toBe(0);
    expect(errors).toMatchObject([
      {
        code: "worker_lost",
        retryable: false,
        message: `Plugin acme.notes lost its thread while this ${method} was under way. It is not run again, because it may have done its work.`,
        details: { method },
      },
    ]);
  },
);

test.each(["tool", "operation"])("a %s that had not begun is run on the next thread", async (method) => {
  expect(await lost(1, { method, fate: "unstarted" })).toEqual({ made: 1, errors: [] });
});
