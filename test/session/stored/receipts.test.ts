import { expect, test } from "vitest";
import type { AppendRequest } from "../../../src/kernel/index.js";
import { ComponentReader } from "../../../src/session/stored/components.js";
import { Receipts } from "../../../src/session/stored/receipts.js";
import { SessionRows } from "../../../src/session/stored/session-rows.js";
import { decode } from "../../../src/wire/index.js";
import { diskFull } from "../../support/memory-store.js";

const NOTHING = { component: async () => undefined, components: async () => new Map(), rows: async () => [] };
const nothingStored = () => new ComponentReader(NOTHING, undefined);
const rowsOf = () => new SessionRows({ store: NOTHING, sessionId: "s", table: "receipts" });
const request: AppendRequest = { nodes: [{ kind: "plugin", pluginType: "note", body: 1 }], operationId: "k" };
const appended = { status: "appended", nodeIds: ["s@1.0"], leafNodeId: "s@1.0" } as const;
const keysOf = (rows: SessionRows) =>
  decode<readonly { readonly key: string }[]>(rows.encode()[0]?.value as Uint8Array).map(({ key }) => key);

test("an append asked for twice under a key at once runs once, and both get its result", async () => {
  const rows = rowsOf();
  const receipts = new Receipts(rows, nothingStored);
  let runs = 0;
  const append = () =>
    receipts.append("k", request, async (keep) => {
      runs++;
      keep(appended);
      return appended;
    });
  expect(await Promise.all([append(), append()])).toEqual([appended, appended]);
  expect([runs, rows.dirty, keysOf(rows)]).toEqual([1, true, ["k"]]);
});

test("an append whose write failed is not remembered: asked for again, it runs again", async () => {
  const rows = rowsOf();
  const receipts = new Receipts(rows, nothingStored);
  const failing = receipts.append("k", request, async (keep) => {
    keep(appended);
    throw diskFull();
  });
  await expect(failing).rejects.toMatchObject({ code: "store_write_failed" });
  expect(keysOf(rows)).toEqual([]);
  expect(await receipts.append("k", request, async () => appended)).toEqual(appended);
});

test("the same key for something else is a conflict", async () => {
  const rows = rowsOf();
  const receipts = new Receipts(rows, nothingStored);
  await receipts.keepOperation("k", "notes.add", { output: 1, events: [], turns: [] });
  expect(await receipts.operation("k", "notes.add")).toEqual({ output: 1, events: [], turns: [] });
  await expect(receipts.operation("k", "notes.drop")).rejects.toMatchObject({
    code: "operation_key_conflict",
    details: { key: "k", name: "notes.add" },
  });
});

test("the sixty-fifth receipt makes the first one leave", async () => {
  const rows = rowsOf();
  const receipts = new Receipts(rows, nothingStored);
  for (let n = 1; n <= 65; n++) await receipts.keepOperation(`k${n}`, "op", { output: n, events: [], turns: [] });
  const keys = keysOf(rows);
  expect([keys.length, keys[0], keys.at(-1)]).toEqual([64, "k2", "k65"]);
});
