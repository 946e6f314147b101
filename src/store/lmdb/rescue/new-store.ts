import type { TableName } from "../../records/index.js";
import { LAYOUT_VERSION, openTables, recordLayout, recordOpening } from "../file/layout.js";
import { openRoot } from "../file/root.js";

/** A record as it is stored. */
export interface LmdbRecord {
  readonly table: TableName;
  readonly key: string;
  readonly bytes: Uint8Array;
}

const RECORDS_PER_TRANSACTION = 1_000;

/** Makes a new store of records that are sealed already. `opening`: the number of the last opening. */
export function createLmdb(path: string, records: Iterable<LmdbRecord>, opening: number): void {
  const root = openRoot(path, { readOnly: false });
  try {
    const tables = openTables(root);
    const put = (part: readonly LmdbRecord[]) =>
      root.transactionSync(() => {
        for (const { table, key, bytes } of part) tables[table].putSync(key, bytes);
      });
    const part: LmdbRecord[] = [];
    for (const record of records) {
      part.push(record);
      if (part.length === RECORDS_PER_TRANSACTION) put(part.splice(0));
    }
    put(part);
    root.transactionSync(() => {
      recordLayout(root, { version: LAYOUT_VERSION });
      recordOpening(root, opening);
    });
  } finally {
    root.close();
  }
}
