import { open } from "lmdb";
import { fingerprint, type Head, NO_USAGE, nodeId, segmentId } from "../../../src/kernel/index.js";
import { seal } from "../../../src/store/records/index.js";
import { encode } from "../../../src/wire/index.js";
import { segmentBytes } from "../commits.js";

const RAW = { encoding: "binary", noSubdir: false, overlappingSync: false } as const;
const TABLES = ["meta", "heads", "segments", "components", "journal", "deleted", "rows", "order", "children"] as const;

type RawTable = ReturnType<typeof openTable>;

/** Reads or changes records behind the store's back. */
export async function raw<T>(path: string, use: (table: (name: string) => RawTable) => T): Promise<T> {
  const root = open<Uint8Array, string>({ ...RAW, path });
  const tables = new Map<string, RawTable>();
  const result = use((name) => {
    const table = tables.get(name) ?? openTable(root, name);
    tables.set(name, table);
    return table;
  });
  await root.close();
  return result;
}

function openTable(root: ReturnType<typeof open<Uint8Array, string>>, name: string) {
  return root.openDB<Uint8Array, string>(name, { encoding: "binary" });
}

/** Every record of a store, but for how often it was opened. */
export function recordsIn(path: string): Promise<Record<string, readonly (readonly [string, string])[]>> {
  return raw(path, (table) =>
    Object.fromEntries(
      TABLES.map((name) => [
        name,
        [...table(name).getRange()]
          .filter(({ key }) => name !== "meta" || key !== "opening")
          .map(({ key, value }) => [key, Buffer.from(value).toString("base64")] as const),
      ]),
    ),
  );
}

/** The id of the n-th session of an old store; every third is a fork of the first. */
export const nth = (n: number) => `session ${String(n).padStart(5, "0")}${n % 7 === 0 ? " 日本" : ""}`;

/** A store as the first releases wrote it: `count` sessions of one turn each. */
export async function makeOldStore(path: string, version: 1 | 2, count: number): Promise<void> {
  const sealed = (payload: Uint8Array, key?: string) => (version === 1 ? payload : seal(payload, key));
  await raw(path, (table) => {
    const put = (name: string, key: string, bytes: Uint8Array) => void table(name).put(key, bytes);
    for (let n = 0; n < count; n++) {
      const sessionId = nth(n);
      const id = segmentId(sessionId, 1);
      const head: Head = {
        sessionId,
        revision: 1,
        leaf: nodeId(id, 0),
        turnIndex: 1,
        usage: NO_USAGE,
        components: {},
        operation: `turn ${n}`,
        ...(n > 0 && n % 3 === 0 && { parent: { sessionId: nth(0), leaf: nodeId(segmentId(nth(0), 1), 0) } }),
      };
      const receipts = new Uint8Array(new Float64Array([fingerprint(head.operation), 0]).buffer);
      put("heads", sessionId, sealed(encode(version === 1 ? head : { head, receipts }), sessionId));
      put("segments", id, sealed(segmentBytes(id, null, [`message of ${n}`])));
    }
    const check = fingerprint("troupe layout 2");
    put("meta", "layout", encode(version === 1 ? { version } : { version, check }));
  });
}
