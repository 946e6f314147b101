import {
  BRANCH,
  LEAF,
  LITTLE,
  type Meta,
  type Node,
  nodesOf,
  OVERFLOW,
  type Overflow,
  PAGE_HEADER,
  type PageFile,
  PageProblem,
  readNumber,
  readTree,
  type Tree,
  viewOf,
} from "./pages.js";

/** An entry of a table. `value` reads it, which for a large one means reading more pages. */
interface Entry {
  readonly key: Buffer;
  readonly value: () => Buffer;
}

/** A place in a tree: the keys below it lie between two keys of the page above. */
interface Range {
  readonly from?: Buffer;
  readonly to?: Buffer;
}

/**
 * Follows the trees of an LMDB file as LMDB would, and checks every number LMDB would trust: page numbers and kinds,
 * the order of keys, what every tree says of its own size. No page is used twice, so no walk is endless.
 */
export class FileWalk {
  readonly problems: string[] = [];
  readonly #file: PageFile;
  readonly #meta: Meta;
  readonly #tolerant: boolean;
  /** One bit per page. */
  readonly #used: Uint8Array;

  /** `tolerant`: leaves out what is damaged, with everything below it, and lists it, instead of throwing. */
  constructor(file: PageFile, meta: Meta, { tolerant = false } = {}) {
    this.#file = file;
    this.#meta = meta;
    this.#tolerant = tolerant;
    const pages = Math.min(meta.lastPage + 1, Math.ceil(file.length / meta.pageSize));
    if (!tolerant && meta.lastPage >= 2 ** 32) throw new PageProblem("its meta page counts too many pages");
    this.#used = new Uint8Array(Math.ceil(pages / 8) + 1);
  }

  /** The tables of the file by name. */
  tables(): Map<string, Tree> {
    const tables = new Map<string, Tree>();
    this.walk("main", this.#meta.main, ({ key, value }) => {
      const view = viewOf(value());
      const tree = readTree(view, 0);
      // Names end with a zero. A table of ours has no flags, and nothing where those with fixed sizes say theirs.
      if (key.at(-1) !== 0 || tree.flags !== 0 || view.getUint32(0) !== 0) throw new PageProblem("a table is not ours");
      tables.set(key.toString("utf8", 0, key.length - 1), tree);
    });
    return tables;
  }

  /**
   * Visits the entries of a tree in the order of their keys, and answers how many there should be. The tree's own count
   * may be what is damaged, so it is asked only when a page is missing whose entries nobody could count.
   */
  walk(name: string, tree: Tree, visit: Visit): number {
    const found = { branchPages: 0, leafPages: 0, overflowPages: 0, entries: 0 };
    let onPages = 0;
    const isMain = tree === this.#meta.main;
    const visitPage = (page: number, level: number, range: Range): void => {
      const kind = level === tree.depth ? LEAF : BRANCH;
      const nodes = this.#nodes(page, kind, range, tree === this.#meta.free);
      if (kind === LEAF) {
        found.leafPages++;
        onPages += nodes.length;
      } else found.branchPages++;
      nodes.forEach((node, i) => {
        const next = nodes[i + 1]?.key ?? range.to;
        const below = { ...(i > 0 ? { from: node.key } : range), ...(next !== undefined && { to: next }) };
        this.#tolerating(`${name}, page ${page}`, () => {
          if (kind === BRANCH) visitPage(node.child, level + 1, below);
          else this.#visitNode(node, isMain, found, visit);
        });
      });
    };
    this.#tolerating(name, () => {
      if (tree.root === Number.POSITIVE_INFINITY) {
        if (tree.depth !== 0 || tree.entries !== 0) throw new PageProblem("it has entries but no root");
        return;
      }
      if (tree.depth < 1 || tree.depth > 32) throw new PageProblem(`its depth is ${tree.depth}`);
      visitPage(tree.root, 1, {});
      checkCounts(tree, found);
    });
    return found.leafPages === tree.leafPages ? onPages : tree.entries;
  }

  #visitNode(node: Node, isMain: boolean, found: { overflowPages: number; entries: number }, visit: Visit): void {
    const { key, value } = node;
    if (node.holdsTree !== isMain) throw new PageProblem("an entry is of the wrong kind");
    if (isMain && node.size !== 48) throw new PageProblem("a table's description has the wrong size");
    if (Buffer.isBuffer(value)) visit({ key, value: () => value });
    else {
      this.#checkOverflow(value, node.size);
      found.overflowPages += value.pages;
      visit({ key, value: () => this.#file.bytes(value.page * this.#meta.pageSize + PAGE_HEADER, node.size) });
    }
    found.entries++;
  }

  #nodes(page: number, kind: typeof BRANCH | typeof LEAF, { from, to }: Range, isFree: boolean): Node[] {
    const bytes = this.#page(page, kind, 1);
    const nodes = nodesOf(bytes, kind);
    // LMDB asserts that a branch has two children; only in the tree of free pages it may have one.
    if (nodes.length === 0 || (kind === BRANCH && nodes.length < 2 && !isFree))
      throw new PageProblem("it is too empty");
    let previous = from;
    nodes.forEach(({ key }, i) => {
      // The first key of a branch is not looked at: everything smaller than the second is below it.
      if (kind === BRANCH && i === 0) return;
      if (isFree ? key.length !== 8 : key.length === 0) throw new PageProblem("a key has the wrong size");
      const follows =
        previous === undefined || (i === 0 ? order(key, previous, isFree) >= 0 : order(key, previous, isFree) > 0);
      if (!follows || (to !== undefined && order(key, to, isFree) >= 0))
        throw new PageProblem("its keys are out of order");
      previous = key;
    });
    return nodes;
  }

  /** A page of this kind, checked against its own header, and from now on in use. */
  #page(number: number, kind: number, count: number): Buffer {
    const { pageSize, transaction } = this.#meta;
    this.#use(number, count);
    const bytes = this.#file.bytes(number * pageSize, kind === OVERFLOW ? PAGE_HEADER : pageSize);
    if (bytes.length < (kind === OVERFLOW ? PAGE_HEADER : pageSize)) throw new PageProblem(`page ${number} is cut off`);
    const view = viewOf(bytes);
    if (readNumber(view, 0) !== number) throw new PageProblem(`page ${number} calls itself ${readNumber(view, 0)}`);
    if (view.getUint16(18, LITTLE) !== kind) throw new PageProblem(`page ${number} is of another kind`);
    // LMDB writes in place what it takes for a page of the running transaction.
    if (readNumber(view, 8) > transaction) throw new PageProblem(`page ${number} is of a transaction that never was`);
    return bytes;
  }

  #use(page: number, count: number): void {
    // Numbers that a double does not count exactly would end the loop before it has begun.
    if (!Number.isSafeInteger(page + count)) throw new PageProblem(`there is no page ${page}`);
    for (let each = page; each < page + count; each++) {
      if (!(each >= 2 && each <= this.#meta.lastPage && each >> 3 < this.#used.length)) {
        throw new PageProblem(`there is no page ${each}`);
      }
      const bit = 1 << (each & 7);
      const byte = this.#used[each >> 3] as number;
      if ((byte & bit) !== 0) throw new PageProblem(`page ${each} is used twice`);
      this.#used[each >> 3] = byte | bit;
    }
  }

  #checkOverflow({ page, pages, transaction }: Overflow, size: number): void {
    const { pageSize } = this.#meta;
    const needed = Math.floor((PAGE_HEADER - 1 + size) / pageSize) + 1;
    if (pages !== needed) throw new PageProblem(`a value of ${size} bytes has ${pages} pages`);
    const view = viewOf(this.#page(page, OVERFLOW, pages));
    if (view.getUint32(20, LITTLE) !== pages) throw new PageProblem(`page ${page} is of a value of another size`);
    if (readNumber(view, 8) !== transaction) throw new PageProblem(`page ${page} is of another transaction`);
    if ((page + pages) * pageSize > this.#file.length) throw new PageProblem(`page ${page} is cut off`);
  }

  /**
   * The free pages: lists of page numbers, by the transaction that freed them. One that is in use, or free twice, would
   * be handed out and overwritten. A negative number is the length of the run that begins at the next one.
   */
  checkFreePages(): void {
    this.walk("free pages", this.#meta.free, ({ key, value }) => {
      if (key.length !== 8 || readNumber(viewOf(key), 0) > this.#meta.transaction) {
        throw new PageProblem("free pages are of a transaction that never was");
      }
      this.#useListed(viewOf(value()));
    });
  }

  #useListed(list: DataView): void {
    const count = list.byteLength < 8 ? Number.NaN : readNumber(list, 0);
    if (!(8 * (count + 1) <= list.byteLength)) throw new PageProblem("a list of free pages is cut off");
    for (let i = 1; i <= count; i++) {
      const number = list.getBigInt64(8 * i, LITTLE);
      if (number === 0n) continue;
      if (number > 0n) this.#use(Number(number), 1);
      else if (i === count) throw new PageProblem("a list of free pages ends too early");
      else this.#use(readNumber(list, 8 * ++i), Number(-number));
    }
  }

  /** How many pages neither a tree nor a list of free pages accounts for. */
  lost(): number {
    let used = 0;
    for (const byte of this.#used) for (let bits = byte; bits !== 0; bits &= bits - 1) used++;
    return this.#meta.lastPage - 1 - used;
  }

  #tolerating(where: string, run: () => void): void {
    try {
      run();
    } catch (problem) {
      if (!(problem instanceof PageProblem) || !this.#tolerant) throw problem;
      this.problems.push(`${where}: ${problem.message}`);
    }
  }
}

type Visit = (entry: Entry) => void;

function order(a: Buffer, b: Buffer, isNumber: boolean): number {
  return isNumber ? readNumber(viewOf(a), 0) - readNumber(viewOf(b), 0) : Buffer.compare(a, b);
}

function checkCounts(tree: Tree, found: Partial<Tree>): void {
  for (const [what, count] of Object.entries(found)) {
    if (count !== tree[what as keyof Tree])
      throw new PageProblem(`it counts ${tree[what as keyof Tree]} ${what}, not ${count}`);
  }
}
