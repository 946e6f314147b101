import { Packr } from "msgpackr/pack";
import { nodeCrypto } from "../async/index.js";
import { messageOf, TroupeError, unserialisable } from "../kernel/index.js";

/**
 * Bytes that outlive a thread: stored segments and components, fork snapshots. Two bytes of magic and one of version,
 * then msgpack. Decoding foreign bytes is bounded in size, depth and claimed lengths before msgpackr sees them.
 */
const MAGIC_0 = 0x54; // "T"
const MAGIC_1 = 0x70; // "p"
const VERSION = 1;
const HEADER = 3;
/** msgpack extension types. */
const UNDEFINED = 0x00;
const TIMESTAMP = 0xff;

const MAX_BYTES = 64 * 1024 * 1024;
const MAX_DEPTH = 128;

// One Packr per thread: it is not safe to share, and each thread has its own copy of this module. Byte arrays are
// copied out: somebody who changes decoded state must not change the record it came from.
const packr = new Packr({ useRecords: false, useToJSON: false, copyBuffers: true });

/**
 * Encodes plain data. The result owns its memory, so posting it copies only these bytes. What `decode` would not read
 * back is refused with `unserialisable`, so that no record is written that nobody can open.
 */
export function encode(value: unknown): Uint8Array<ArrayBuffer> {
  let packed: Uint8Array;
  try {
    packed = packr.pack(value);
  } catch (cause) {
    throw unwritable(messageOf(cause), cause);
  }
  const bytes = new Uint8Array(HEADER + packed.length);
  bytes[0] = MAGIC_0;
  bytes[1] = MAGIC_1;
  bytes[2] = VERSION;
  bytes.set(packed, HEADER);
  if (bytes.length > MAX_BYTES) throw unwritable(`it has ${bytes.length} bytes, more than the ${MAX_BYTES} allowed`);
  checkShape(bytes, unwritable);
  return bytes;
}

/**
 * Encodes state somebody else wrote: what msgpack would quietly change (functions, maps, class instances, cycles) is
 * refused with `unserialisable` and the path to it. Half of a surrogate pair is replaced by U+FFFD, in the value too:
 * who keeps using it then has what comes back from the bytes.
 */
export function encodeState(value: unknown, what: string): Uint8Array<ArrayBuffer> {
  let problem: string | undefined;
  try {
    problem = findUnfit(value, "", 0);
  } catch (cause) {
    throw unserialisable(`${what} cannot be saved`, messageOf(cause), cause);
  }
  if (problem !== undefined) throw unserialisable(`${what} cannot be saved`, problem);
  return encode(typeof value === "string" ? value.toWellFormed() : value);
}

export function decode<T>(bytes: Uint8Array): T {
  if (bytes.length > MAX_BYTES) throw damagedRecord(`it has ${bytes.length} bytes, more than the ${MAX_BYTES} allowed`);
  if (bytes.length <= HEADER || bytes[0] !== MAGIC_0 || bytes[1] !== MAGIC_1)
    throw damagedRecord("it is not a Troupe record");
  if (bytes[2] !== VERSION) {
    throw new TroupeError(
      "snapshot_version_unknown",
      `This record has format version ${bytes[2]}; this release reads version ${VERSION}.`,
      {
        details: { found: bytes[2], known: VERSION },
      },
    );
  }
  checkShape(bytes, damagedRecord);
  try {
    // A plain view, because a Buffer's byte arrays would come back as Buffers.
    return packr.unpack(new Uint8Array(bytes.buffer, bytes.byteOffset + HEADER, bytes.length - HEADER)) as T;
  } catch (cause) {
    throw damagedRecord(messageOf(cause));
  }
}

/** The name of a stored component: the same content has the same name. */
export function contentHash(content: Uint8Array | string): string {
  return nodeCrypto().hash("sha256", content, "base64url");
}

export function damagedRecord(why: string): TroupeError {
  return new TroupeError("snapshot_damaged", `A stored record cannot be read: ${why}.`);
}

function unwritable(why: string, cause?: unknown): TroupeError {
  return unserialisable("A record cannot be written", why, cause);
}

function findUnfit(value: unknown, path: string, depth: number): string | undefined {
  const at = path === "" ? "the value" : path;
  if (depth > MAX_DEPTH) return `${at} is nested deeper than ${MAX_DEPTH} levels or refers to itself`;
  if (typeof value === "function" || typeof value === "symbol") return `${at} is a ${typeof value}`;
  if (typeof value === "bigint" && BigInt.asIntN(64, value) !== value && BigInt.asUintN(64, value) !== value)
    return `${at} is a bigint of more than 64 bits`;
  if (typeof value !== "object" || value === null) return undefined;
  if (Array.isArray(value)) {
    for (let i = 0; i < value.length; i++) {
      const item: unknown = value[i];
      const within = `${path}[${i}]`;
      const problem = isHalved(item) ? replaceHalves(value, i, item, within) : findUnfit(item, within, depth + 1);
      if (problem !== undefined) return problem;
    }
    return undefined;
  }
  if (value instanceof Date || value instanceof Uint8Array) return undefined;
  const prototype = Object.getPrototypeOf(value);
  if (prototype !== Object.prototype && prototype !== null) {
    return `${at} is a ${value.constructor?.name ?? "class instance"}; use plain objects, arrays, dates and byte arrays`;
  }
  for (const key of Object.keys(value)) {
    if (key === "__proto__") return `${at} has a key __proto__`;
    if (!key.isWellFormed()) return `${at} has a key with half of a surrogate pair; use toWellFormed()`;
    const within = path === "" ? key : `${path}.${key}`;
    const item = (value as Record<string, unknown>)[key];
    const problem = isHalved(item) ? replaceHalves(value, key, item, within) : findUnfit(item, within, depth + 1);
    if (problem !== undefined) return problem;
  }
  return undefined;
}

function isHalved(value: unknown): value is string {
  return typeof value === "string" && !value.isWellFormed();
}

/** Why text with half of a surrogate pair could not be replaced where it stands. */
function replaceHalves(holder: object, key: string | number, text: string, path: string): string | undefined {
  Reflect.set(holder, key, text.toWellFormed());
  if (!isHalved(Reflect.get(holder, key))) return undefined;
  return `${path} is text with half of a surrogate pair; use toWellFormed()`;
}

/** Walks the msgpack structure without building anything: depth, truncation, trailing bytes and extensions are seen here. */
function checkShape(bytes: Uint8Array, refuse: (why: string) => TroupeError): void {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const end = bytes.length;
  /** Values still expected at each open level. */
  const open: number[] = [1];
  let at = HEADER;
  const need = (count: number) => {
    if (at + count > end) throw refuse("it ends too early");
  };
  const container = (count: number) => {
    if (count > end - at) throw refuse("it claims more values than it has bytes");
    if (count === 0) return;
    if (open.length > MAX_DEPTH) throw refuse(`it is nested deeper than ${MAX_DEPTH} levels`);
    open.push(count);
  };
  const skip = (count: number) => {
    need(count);
    at += count;
  };
  // Of msgpackr's extensions only these two are ever written; the others can define records or point backwards.
  const extension = (size: number) => {
    need(1 + size);
    const type = view.getUint8(at);
    if (type !== UNDEFINED && type !== TIMESTAMP) throw refuse(`it contains the unknown extension ${type}`);
    at += 1 + size;
  };
  const length = (width: number): number => {
    need(width);
    const value = width === 1 ? view.getUint8(at) : width === 2 ? view.getUint16(at) : view.getUint32(at);
    at += width;
    return value;
  };
  for (;;) {
    while (open.length > 0 && open[open.length - 1] === 0) open.pop();
    if (open.length === 0) break;
    open[open.length - 1] = (open[open.length - 1] as number) - 1;
    need(1);
    const token = view.getUint8(at++);
    if (token < 0x80 || token >= 0xe0) continue;
    if (token < 0x90) container((token & 0x0f) * 2);
    else if (token < 0xa0) container(token & 0x0f);
    else if (token < 0xc0) skip(token & 0x1f);
    else if (token === 0xc1) throw refuse("it contains the unknown token 0xc1");
    // Nothing, false and true.
    else if (token < 0xc4) continue;
    // Bytes and extensions, with a length of 1, 2 or 4 bytes.
    else if (token < 0xc7) skip(length(1 << (token - 0xc4)));
    else if (token < 0xca) extension(length(1 << (token - 0xc7)));
    // Floats of 4 and 8 bytes, then unsigned and signed integers of 1, 2, 4 and 8.
    else if (token < 0xcc) skip(token === 0xca ? 4 : 8);
    else if (token < 0xd4) skip(1 << (token & 3));
    else if (token < 0xd9) extension(1 << (token - 0xd4));
    // Texts, lists and maps, with their lengths.
    else if (token < 0xdc) skip(length(1 << (token - 0xd9)));
    else if (token < 0xde) container(length(token === 0xdc ? 2 : 4));
    else container(length(token === 0xde ? 2 : 4) * 2);
  }
  if (at !== end) throw refuse("it has bytes behind its end");
}
