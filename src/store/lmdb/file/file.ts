import { accessSync, constants, existsSync, statSync } from "node:fs";
import { join } from "node:path";
import { messageOf, type TroupeError } from "../../../kernel/index.js";
import { rightKey } from "../../records/index.js";
import { checkLayout, type Layout } from "./layout.js";
import { damagedStore, storeOpenFailed, unlessTold } from "./open-errors.js";
import { type Meta, PAGE_HEADER, PageFile, PageProblem, readNumber, viewOf } from "./pages.js";
import { FileWalk } from "./walk.js";

export const fileOf = (path: string): string => join(path, "data.mdb");

/**
 * Looks at LMDB's files before LMDB does: when it cannot open them, lmdb 3.5 frees its environment twice and takes the
 * whole process with it, and it follows a damaged page to wherever it points. Throws `store_open_failed`, or
 * `store_damaged` for a file that is no database or not a whole one.
 *
 * For writing, every page but those of large values is read, at about 3 µs each. A reader comes after a writer, so for
 * reading the beginning is enough.
 */
export function checkDatabaseFile(path: string, { readOnly }: { readonly readOnly: boolean }): void {
  const file = fileOf(path);
  if (!existsSync(file)) {
    if (readOnly) throw storeOpenFailed(path, "there is none yet");
    return;
  }
  // Who writes meanwhile may have used a page again between two reads here: a file is damaged when it stays so.
  for (let looks = readOnly ? MOST_LOOKS : 1; ; looks--) {
    const problem = problemOf(path, { readOnly });
    if (problem === undefined) return;
    if (looks === 1) throw storeDamaged(path, problem);
  }
}

/** How often a file that others write is looked at before it counts as damaged. */
const MOST_LOOKS = 50;

function problemOf(path: string, { readOnly }: { readonly readOnly: boolean }): PageProblem | undefined {
  const pages = openFile(path, { readOnly });
  try {
    // A file without a byte is one whose creation was interrupted; LMDB starts it anew.
    if (pages.length === 0 && !readOnly) return undefined;
    const meta = currentMeta(pages);
    if (!readOnly) checkTrees(pages, meta);
    return undefined;
  } catch (cause) {
    if (cause instanceof PageProblem) return cause;
    throw unlessTold(path, cause);
  } finally {
    pages.close();
  }
}

/**
 * Remembers which file a folder has now. The returned function says why that is no longer so: LMDB goes on writing into
 * a file that was removed or replaced, where nobody will ever find it.
 *
 * @example
 * const missing = watchFile("./data");
 * missing(); // undefined, or "/srv/data/data.mdb was removed while the store was open"
 */
export function watchFile(path: string): () => string | undefined {
  const file = fileOf(path);
  const opened = statSync(file);
  return () => {
    const now = statSync(file, { throwIfNoEntry: false });
    if (now?.ino === opened.ino && now.dev === opened.dev) return undefined;
    return `${file} was ${now === undefined ? "removed" : "replaced"} while the store was open`;
  };
}

function openFile(path: string, { readOnly }: { readonly readOnly: boolean }): PageFile {
  const file = fileOf(path);
  const lock = join(path, "lock.mdb");
  try {
    if (existsSync(lock)) accessSync(lock, constants.R_OK | constants.W_OK);
    accessSync(file, readOnly ? constants.R_OK : constants.R_OK | constants.W_OK);
    return new PageFile(file);
  } catch (cause) {
    throw storeOpenFailed(path, messageOf(cause), cause);
  }
}

export function storeDamaged(path: string, problem: PageProblem): TroupeError {
  const what = `${fileOf(path)} is not a database of this release, or is damaged: ${problem.message}`;
  return damagedStore(what, { details: { path }, cause: problem });
}

/** The meta page in force. */
export function currentMeta(pages: PageFile): Meta {
  const [first, second] = pages.metas();
  if (first instanceof PageProblem) throw first;
  if (second instanceof PageProblem) throw second;
  const [even, odd] = [first.transaction, second.transaction];
  // Transactions take turns; a new file has two of the first. Otherwise a flipped bit could put an old state in force.
  const inTurn = even === odd ? even === 0 : even % 2 === 0 && odd % 2 === 1 && Math.abs(even - odd) === 1;
  if (!inTurn || first.pageSize !== second.pageSize) throw new PageProblem("its meta pages contradict each other");
  for (const meta of [first, second]) checkRoot(pages, meta);
  return even >= odd ? first : second;
}

/** Every transaction rewrites the root of the main tree, so that page says too which transaction it was. */
function checkRoot(pages: PageFile, { main, pageSize, transaction }: Meta): void {
  if (main.root === Number.POSITIVE_INFINITY) return;
  const position = main.root * pageSize;
  const isThere = position + PAGE_HEADER <= pages.length;
  if (!isThere || readNumber(viewOf(pages.bytes(position, PAGE_HEADER)), 8) !== transaction) {
    throw new PageProblem("a meta page is not of the transaction it names");
  }
}

/** Follows every tree of the file. */
export function checkTrees(pages: PageFile, meta: Meta): void {
  const walk = new FileWalk(pages, meta);
  const tables = walk.tables();
  const layout = layoutOf(walk, tables);
  // On its way from version 1, only some of a store's records have their seals.
  const sealed = layout !== undefined && layout.version >= 2 && layout.migration?.from !== 1;
  for (const [name, tree] of tables) {
    if (name === META_TABLE) continue;
    walk.walk(name, tree, ({ key, value }) => {
      const text = key.toString("utf8");
      if (sealed && rightKey(name, text, value()) !== text) {
        throw new PageProblem(`a record of table ${name} stands under the wrong key`);
      }
    });
  }
  walk.checkFreePages();
  // The end of a file may be missing when it is free, but not when nobody knows of it.
  if ((meta.lastPage + 1) * meta.pageSize > pages.length && walk.lost() > 0) throw new PageProblem("it is cut off");
}

const META_TABLE = "meta";

function layoutOf(walk: FileWalk, tables: ReturnType<FileWalk["tables"]>): Layout | undefined {
  const tree = tables.get(META_TABLE);
  let layout: Layout | undefined;
  if (tree === undefined) return undefined;
  walk.walk(META_TABLE, tree, ({ key, value }) => {
    if (key.toString("utf8") !== "layout") return;
    try {
      layout = checkLayout(value());
    } catch {
      // Opening will say what is wrong with it.
    }
  });
  return layout;
}
