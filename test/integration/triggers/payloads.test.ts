import type { TroupeOptions } from "troupe";
import { expect, test } from "vitest";
import { plugin, refusalOf, startTroupe } from "../../support/runtime.js";

const withParcels = (entry: object = {}): TroupeOptions => ({
  plugins: [{ module: plugin("parcels"), ...entry }],
});
const sent = (troupe: Awaited<ReturnType<typeof startTroupe>>, payload: object) =>
  refusalOf(troupe.trigger("parcel.sent", payload));

test("a payload is checked by its plugin's own schema, on the plugin's thread, and no instance is made for it", async () => {
  const troupe = await startTroupe(withParcels());
  expect(await troupe.trigger("parcel.sent", { number: "1236" })).toEqual({ matched: 0, replayed: false });
  const refused = await sent(troupe, { number: "1237" });
  const threadId = (await troupe.stats()).plugins[0]?.threadId ?? 0;
  expect([refused.code, refused.message]).toEqual([
    "invalid_trigger",
    expect.stringContaining(`does not fit parcel.sent: number: its last digit is wrong, says thread ${threadId}`),
  ]);
  expect(threadId).toBeGreaterThan(0);
});

test("an inline plugin checks a payload by its own schema too, and has as long as its deadline", async () => {
  const troupe = await startTroupe(withParcels({ tier: "inline", deadlineMs: 50 }));
  expect(await troupe.trigger("parcel.sent", { number: "1236" })).toMatchObject({ matched: 0 });
  expect((await sent(troupe, { number: "1237" })).message).toContain("its last digit is wrong");
  expect((await sent(troupe, { act: "wait" })).code).toBe("trigger_check_timeout");
});

test.each([
  ["throws", "throw", "trigger_check_failed", {}],
  ["never answers", "wait", "trigger_check_timeout", { deadlineMs: 500 }],
  ["never ends", "spin", "plugin_blocked", {}],
  ["ends its thread", "exit", "worker_lost", {}],
])("a plugin whose check %s refuses that event, and checks the next one", async (_, act, code, entry) => {
  const troupe = await startTroupe(withParcels(entry));
  const refused = await sent(troupe, { act });
  expect(refused.code).toBe(code);
  if (act === "throw") expect(refused.message).toContain("The scales are broken.");
  expect((await sent(troupe, { number: "1237" })).code).toBe("invalid_trigger");
});
