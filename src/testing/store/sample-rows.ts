import type { Row, RowChange, RowName, RowsReceipt, RowWrite, StoreWrite } from "../../kernel/index.js";
import { accepted, type TestedBackend, written } from "./samples.js";

export function bytesOf(text: string): Uint8Array {
  return new TextEncoder().encode(text);
}

/** A row of the table `tasks`, unless it says another; null removes it. */
export function rowOf(key: string, value: string | null, changes: Partial<RowChange> = {}): RowChange {
  return { table: "tasks", key, value: value === null ? null : bytesOf(value), ...changes };
}

export const rowsWrite = (...changes: readonly RowWrite[]): StoreWrite => ({ kind: "rows", changes });

/** Changes rows that must be accepted; gives the version each is at then. */
export async function changedRows(
  backend: TestedBackend,
  ...changes: readonly RowChange[]
): Promise<readonly number[]> {
  return (accepted((await written(backend, [rowsWrite(...changes)]))[0]) as RowsReceipt).versions;
}

/** With its value as text. */
export function plainRow(row: Row | undefined): unknown {
  return row && { ...row, value: new TextDecoder().decode(row.value) };
}

export async function versionOf(backend: TestedBackend, name: RowName): Promise<number> {
  return (await backend.row(name))?.version ?? 0;
}

/** Key, value and version of each row of a table, of a session or of nobody. */
export async function rowsOf(
  backend: TestedBackend,
  of: { readonly table: string; readonly session?: string },
): Promise<unknown[]> {
  const rows = await backend.rows({ ...of, limit: 1_000 });
  return rows.map(({ key, value, version }) => [key, new TextDecoder().decode(value), version]);
}

/** Names as long as they may be, each of other bytes. */
export function largest() {
  return {
    table: "t".repeat(64),
    session: "日".repeat(256),
    key: `${"é".repeat(199)}kk`,
    order: { at: Number.MAX_SAFE_INTEGER, owner: "😀".repeat(64) },
  };
}
