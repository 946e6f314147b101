import { numbersIn, type Row } from "../../kernel/index.js";

/** The table with what plugins share: rows of nobody, by plugin and key. */
export const SHARED_STATE = "shared_state";
/** How many keys each plugin has there. */
export const SHARED_COUNTS = "shared_counts";

// No plugin's id has a colon, so no plugin's keys begin with another's.
const BEHIND_PLUGIN = ":";

export function sharedRowKey(pluginId: string, key: string): string {
  return pluginId + BEHIND_PLUGIN + key;
}

export function sharedKeyOf(pluginId: string, { key }: Pick<Row, "key">): string {
  return key.slice(pluginId.length + BEHIND_PLUGIN.length);
}

/** The count in the row of a plugin, which is the first of those that begin like it. */
export function countOf([row]: readonly Row[], pluginId: string): number {
  return row?.key === pluginId ? (numbersIn(row)[0] ?? 0) : 0;
}
