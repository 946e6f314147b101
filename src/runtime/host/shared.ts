import { type FieldsOf, invalidOptions, isRecord, type Row, TroupeError, unknownField } from "../../kernel/index.js";
import { SHARED_COUNTS, SHARED_STATE, sharedKeyOf, sharedRowKey } from "../../store/index.js";
import { decode } from "../../wire/index.js";
import type { Runtime } from "../places/index.js";

/** The shared state of a plugin under one key, as it is stored. */
export interface SharedEntry {
  readonly key: string;
  readonly state: unknown;
  /** The plugin's version that stored it. */
  readonly pluginVersion: string;
  /** 1 when it was stored first, and one more with each update. */
  readonly version: number;
}

/** Which page of a plugin's keys is wanted. */
export interface SharedRequest {
  /** The `next` of the page before. */
  readonly after?: string | undefined;
  readonly limit?: number;
}

const REQUEST_FIELDS: FieldsOf<SharedRequest> = { after: true, limit: true };

export interface SharedPage {
  readonly entries: readonly SharedEntry[];
  /** What to ask for behind this page; null behind the last. */
  readonly next: string | null;
}

/** What plugins share by key, for the host: sessions need not be open, nor the plugins there. */
export interface TroupeShared {
  /** Undefined when nothing is stored under the key. */
  get(pluginId: string, key: string): Promise<SharedEntry | undefined>;
  /** A plugin's keys with their state, in the order of the keys' bytes: `limit` of them, 100 by default and 1,000 at most. */
  list(pluginId: string, request?: SharedRequest): Promise<SharedPage>;
  /** The next session with the key begins anew. False when nothing was stored under it. */
  delete(pluginId: string, key: string): Promise<boolean>;
}

export function sharedOf(runtime: Runtime): TroupeShared {
  const rowOf = async (pluginId: string, key: string): Promise<Row | undefined> => {
    runtime.checkOpen();
    const name = sharedRowKey(text(pluginId, "pluginId"), text(key, "key"));
    const [row] = await runtime.store.ask("rows", { table: SHARED_STATE, prefix: name, limit: 1 });
    return row?.key === name ? row : undefined;
  };
  return {
    get: async (pluginId, key) => {
      const row = await rowOf(pluginId, key);
      return row && entryOf(pluginId, row);
    },
    list: async (pluginId, request: SharedRequest = {}) => {
      runtime.checkOpen();
      if (!isRecord(request)) throw invalidOptions("what is listed is an object with after and limit");
      const stranger = unknownField(request, REQUEST_FIELDS, "a page of shared state");
      if (stranger !== undefined) throw invalidOptions(stranger);
      const { after, limit = 100 }: SharedRequest = request;
      if (!Number.isInteger(limit) || limit < 1 || limit > 1_000) throw invalidOptions("limit is from 1 to 1,000");
      const behind = after === undefined ? {} : { after: sharedRowKey(pluginId, text(after, "after")) };
      const prefix = sharedRowKey(text(pluginId, "pluginId"), "");
      const rows = await runtime.store.ask("rows", { table: SHARED_STATE, prefix, ...behind, limit: limit + 1 });
      const entries = rows.slice(0, limit).map((row) => entryOf(pluginId, row));
      return { entries, next: rows.length > limit ? (entries.at(-1)?.key ?? null) : null };
    },
    delete: async (pluginId, key) => {
      for (;;) {
        const row = await rowOf(pluginId, key);
        if (row === undefined) return false;
        const { table, version } = row;
        const removal = { table, key: row.key, value: null, expectedVersion: version };
        try {
          const changes = [removal, { table: SHARED_COUNTS, key: pluginId, add: [-1] }];
          await runtime.store.ask("changeRows", { changes });
          return true;
        } catch (error) {
          // A plugin has changed it meanwhile: it goes as it is now.
          if (!(error instanceof TroupeError) || error.code !== "row_conflict") throw error;
        }
      }
    },
  };
}

function entryOf(pluginId: string, row: Row): SharedEntry {
  const record = decode<{ readonly version: string; readonly state: unknown }>(row.value);
  const { version: pluginVersion = "", state } = isRecord(record) ? record : {};
  return { key: sharedKeyOf(pluginId, row), state, pluginVersion: String(pluginVersion), version: row.version };
}

function text(value: unknown, what: string): string {
  if (typeof value === "string" && value !== "") return value;
  throw invalidOptions(`${what} must be a text`);
}
