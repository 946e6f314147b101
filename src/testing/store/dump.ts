import { type Row, rowNameOf } from "../../kernel/index.js";
import type { TestedBackend } from "./samples.js";

type KeyTable = Parameters<TestedBackend["keys"]>[0];

const PAGE = 500;

/** Everything a store can be asked for, byte by byte, so that two answers can be compared. */
export async function dumpOf(backend: TestedBackend): Promise<unknown> {
  const ids = await keysOf(backend, "heads");
  const heads = await each(ids, (id) => backend.storedHead(id));
  const tenants = new Set([undefined, ...Object.values(heads).map((stored) => stored?.head.tenant)]);
  const text = (bytes: Uint8Array | undefined) => bytes && Buffer.from(bytes).toString("base64");
  const plain = (row: Row | undefined) => row && { ...row, value: text(row.value) };
  return {
    heads,
    segments: await each(await keysOf(backend, "segments"), async (id) => text(await backend.segment(id))),
    components: await each(await keysOf(backend, "components"), async (hash) => text(await backend.component(hash))),
    journals: await each(await keysOf(backend, "journals"), async (id) =>
      (await backend.journal(id)).map((row) => ({ ...row, bytes: text(row.bytes) })),
    ),
    rows: await each(await keysOf(backend, "rows"), async (key) => plain(await backend.row(rowNameOf(key)))),
    children: await each(ids, (id) => backend.children(id)),
    lists: await each([...tenants].map(String), (tenant) =>
      backend.sessionsInOrder({ ...(tenant !== "undefined" && { tenant }), limit: 100_000 }),
    ),
    count: await backend.sessionCount(),
  };
}

async function keysOf(backend: TestedBackend, table: KeyTable): Promise<string[]> {
  const keys: string[] = [];
  for (;;) {
    const page = await backend.keys(table, keys.at(-1), PAGE);
    keys.push(...page);
    if (page.length < PAGE) return keys;
  }
}

async function each<T>(keys: readonly string[], of: (key: string) => T | Promise<T>): Promise<Record<string, T>> {
  const values = await Promise.all(keys.map(of));
  return Object.fromEntries(keys.map((key, i) => [key, values[i] as T]));
}
