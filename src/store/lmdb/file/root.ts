import { createRequire } from "node:module";
import { messageOf } from "../../../kernel/index.js";
import { checkDatabaseFile } from "./file.js";
import { type Root, TABLE } from "./layout.js";
import { storeOpenFailed } from "./open-errors.js";

// LMDB grows its map by itself, but remapping under readers of other threads is best avoided: reserve address space
// (not memory, not disk) for more than a store will hold.
const MAP_BYTES = 64 * 1024 ** 3;

/** Opens the database of a folder, once its file was looked at. */
export function openRoot(path: string, { readOnly }: { readonly readOnly: boolean }): Root {
  checkDatabaseFile(path, { readOnly });
  // Loaded on first use: a native addon costs each thread some 30 ms, and a memory store needs none of it.
  const { open } = createRequire(import.meta.url)("lmdb") as typeof import("lmdb");
  try {
    return open<Uint8Array, string>({
      ...TABLE,
      path,
      readOnly,
      // Otherwise a folder whose name has a dot would be taken for a file.
      noSubdir: false,
      overlappingSync: false,
      mapSize: MAP_BYTES,
    });
  } catch (cause) {
    throw storeOpenFailed(path, messageOf(cause), cause);
  }
}
