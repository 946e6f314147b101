import { closeSync, fstatSync, openSync, readSync } from "node:fs";
import { endianness } from "node:os";

/**
 * LMDB's file, read without LMDB. LMDB trusts every number in it, so a damaged one makes it read or write outside its
 * memory, which ends the process; here the same numbers are only looked at. Numbers are in the machine's own byte order.
 *
 * A file is a sequence of pages. Pages 0 and 1 are meta pages, written in turn: the one with the higher transaction
 * number is in force and names the roots of two trees, the free pages and the main tree, whose values name the tables.
 */
export const LITTLE = endianness() === "LE";

/** Before the content of every page: its number, the transaction that wrote it, a pad, its flags, two bounds. */
export const PAGE_HEADER = 24;
export const BRANCH = 0x01;
export const LEAF = 0x02;
export const OVERFLOW = 0x04;
const META = 0x08;

const MAGIC = 0xbeefc0de;
const FILE_VERSION = 2;
/** The keys of the free pages' tree are numbers; no other flag is set in a store of ours. */
const FREE_TREE_FLAGS = 0x08;
const TREE_BYTES = 48;
const META_BYTES = PAGE_HEADER + 24 + 2 * TREE_BYTES + 24;

/** A tree as its owner describes it. */
export interface Tree {
  readonly flags: number;
  readonly depth: number;
  readonly branchPages: number;
  readonly leafPages: number;
  readonly overflowPages: number;
  readonly entries: number;
  /** Infinite for an empty tree. */
  readonly root: number;
}

export interface Meta {
  readonly pageSize: number;
  readonly lastPage: number;
  readonly transaction: number;
  readonly free: Tree;
  readonly main: Tree;
}

/** What is wrong with a file, in words for a person. */
export class PageProblem extends Error {}

/** An LMDB file, open for reading. */
export class PageFile {
  readonly #descriptor: number;
  readonly length: number;

  constructor(file: string) {
    this.#descriptor = openSync(file, "r");
    this.length = fstatSync(this.#descriptor).size;
  }

  close(): void {
    closeSync(this.#descriptor);
  }

  /** Bytes of the file; fewer than asked for where it ends. */
  bytes(position: number, length: number): Buffer {
    const bytes = Buffer.allocUnsafeSlow(length);
    return bytes.subarray(0, readSync(this.#descriptor, bytes, 0, length, position));
  }

  /** Both meta pages, each or what is wrong with it. */
  metas(): [Meta | PageProblem, Meta | PageProblem] {
    const first = this.#meta(0, 0);
    const second = this.#meta(1, first instanceof PageProblem ? 4_096 : first.pageSize);
    return [first, second];
  }

  #meta(number: number, position: number): Meta | PageProblem {
    const bytes = this.bytes(position, META_BYTES);
    if (bytes.length < META_BYTES) return new PageProblem(`it ends within meta page ${number}`);
    const view = viewOf(bytes);
    const at = PAGE_HEADER;
    const meta: Meta = {
      pageSize: view.getUint32(at + 24, LITTLE),
      lastPage: readNumber(view, at + 24 + 2 * TREE_BYTES),
      transaction: readNumber(view, at + 32 + 2 * TREE_BYTES),
      free: readTree(view, at + 24),
      main: readTree(view, at + 24 + TREE_BYTES),
    };
    const isMeta =
      readNumber(view, 0) === number &&
      view.getUint16(18, LITTLE) === META &&
      view.getUint32(at, LITTLE) === MAGIC &&
      view.getUint32(at + 4, LITTLE) === FILE_VERSION &&
      readNumber(view, at + 8) === 0 &&
      [4_096, 8_192, 16_384, 32_768, 65_536].includes(meta.pageSize) &&
      meta.free.flags === FREE_TREE_FLAGS &&
      meta.main.flags === 0 &&
      view.getUint32(at + 24 + TREE_BYTES, LITTLE) === 0;
    return isMeta ? meta : new PageProblem(`meta page ${number} is not one of this release`);
  }
}

export function viewOf(bytes: Buffer): DataView {
  return new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
}

/** A 64-bit number; infinite beyond what a double counts exactly, which no valid one is. */
export function readNumber(view: DataView, at: number): number {
  const [low, high] = LITTLE
    ? [view.getUint32(at, true), view.getUint32(at + 4, true)]
    : [view.getUint32(at + 4), view.getUint32(at)];
  return high >= 0x200000 ? Number.POSITIVE_INFINITY : high * 0x100000000 + low;
}

/** A tree's description, as meta pages and the entries of the main tree hold it. */
export function readTree(view: DataView, at: number): Tree {
  return {
    flags: view.getUint16(at + 4, LITTLE),
    depth: view.getUint16(at + 6, LITTLE),
    branchPages: readNumber(view, at + 8),
    leafPages: readNumber(view, at + 16),
    overflowPages: readNumber(view, at + 24),
    entries: readNumber(view, at + 32),
    root: readNumber(view, at + 40),
  };
}

/** Where the value of an entry too large for its page is. */
export interface Overflow {
  readonly page: number;
  readonly transaction: number;
  readonly pages: number;
}

/** An entry of a leaf, or of a branch, where it has a child page instead of a value. */
export interface Node {
  readonly key: Buffer;
  /** Of a branch. */
  readonly child: number;
  /** Of a leaf: in place, or where it is. */
  readonly size: number;
  readonly value: Buffer | Overflow;
  readonly holdsTree: boolean;
}

const NODE_HEADER = 8;
const BIG = 0x01;
const SUB_TREE = 0x02;
const OVERFLOW_BYTES = 24;

/**
 * The entries of a page, in order. Every offset in it is checked first: they must lie side by side behind `upper`, as
 * LMDB leaves them, so that none reaches out of the page or into another.
 */
export function nodesOf(page: Buffer, kind: typeof BRANCH | typeof LEAF): Node[] {
  const view = viewOf(page);
  const lower = view.getUint16(20, LITTLE);
  const upper = view.getUint16(22, LITTLE);
  const end = page.length - PAGE_HEADER;
  if (lower % 2 !== 0 || lower > upper || upper > end) throw new PageProblem("its bounds are wrong");
  const places: [start: number, end: number][] = [];
  const nodes: Node[] = [];
  for (let i = 0; i < lower / 2; i++) {
    const start = view.getUint16(PAGE_HEADER + 2 * i, LITTLE);
    if (start < upper || start + NODE_HEADER > end) throw new PageProblem("an entry lies outside of it");
    const { node, length } = readNode(page, view, PAGE_HEADER + start, kind);
    places.push([start, start + length + (length % 2)]);
    nodes.push(node);
  }
  places.sort(([a], [b]) => a - b);
  let at = upper;
  for (const [start, after] of places) {
    if (start !== at) throw new PageProblem("its entries overlap or leave gaps");
    at = after;
  }
  if (at !== end) throw new PageProblem("its entries do not fill it");
  return nodes;
}

function readNode(page: Buffer, view: DataView, at: number, kind: number): { node: Node; length: number } {
  const [low, high] = LITTLE ? [0, 2] : [2, 0];
  const word = view.getUint16(at + low, LITTLE) + view.getUint16(at + high, LITTLE) * 0x10000;
  const flags = view.getUint16(at + 4, LITTLE);
  const keySize = view.getUint16(at + 6, LITTLE);
  const valueAt = at + NODE_HEADER + keySize;
  const key = page.subarray(at + NODE_HEADER, valueAt);
  if (kind === BRANCH) {
    if (valueAt > page.length) throw new PageProblem("a key reaches out of it");
    const node = { key, child: word + flags * 0x100000000, size: 0, value: EMPTY, holdsTree: false };
    return { node, length: NODE_HEADER + keySize };
  }
  if (flags !== 0 && flags !== BIG && flags !== SUB_TREE) throw new PageProblem(`an entry has the flags ${flags}`);
  const size = flags === BIG ? OVERFLOW_BYTES : word;
  if (valueAt + size > page.length) throw new PageProblem("an entry reaches out of it");
  const value = flags === BIG ? readOverflow(view, valueAt) : page.subarray(valueAt, valueAt + size);
  const node = { key, child: 0, size: word, value, holdsTree: flags === SUB_TREE };
  return { node, length: NODE_HEADER + keySize + size };
}

const EMPTY = Buffer.alloc(0);

function readOverflow(view: DataView, at: number): Overflow {
  return {
    page: readNumber(view, at),
    transaction: readNumber(view, at + 8),
    pages: readNumber(view, at + 16),
  };
}
