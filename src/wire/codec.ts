import { createHash } from "node:crypto";
import { Packr } from "msgpackr";
import { messageOf, TroupeError } from "../kernel/index.js";

/**
 * Bytes that outlive a thread: stored segments and components, fork snapshots. Two bytes of magic and one of version,
 * then msgpack. Decoding foreign bytes is bounded in size, depth and claimed lengths before msgpackr sees them.
 */
const MAGIC_0 = 0x54; // "T"
const MAGIC_1 = 0x70; // "p"
const VERSION = 1;
const HEADER = 3;

export interface DecodeLimits {
  readonly maxBytes?: number;
  readonly maxDepth?: number;
}
const MAX_BYTES = 64 * 1024 * 1024;
const MAX_DEPTH = 128;

// One Packr per thread: it is not safe to share, and each thread has its own copy of this module.
const packr = new Packr({ useRecords: false });

/** Encodes plain data. The result owns its memory, so posting it copies only these bytes. */
export function encode(value: unknown): Uint8Array<ArrayBuffer> {
  const packed = packr.pack(value);
  const bytes = new Uint8Array(HEADER + packed.length);
  bytes[0] = MAGIC_0;
  bytes[1] = MAGIC_1;
  bytes[2] = VERSION;
  bytes.set(packed, HEADER);
  return bytes;
}

/**
 * Encodes state somebody else wrote: what msgpack would quietly change (functions, maps, class instances, cycles) is
 * refused with `unserialisable` and the path to it.
 */
export function encodeState(value: unknown, what: string): Uint8Array<ArrayBuffer> {
  const problem = findUnfit(value, "", 0);
  if (problem !== undefined) throw new TroupeError("unserialisable", `${what} cannot be saved: ${problem}.`);
  return encode(value);
}

export function decode<T>(bytes: Uint8Array, limits: DecodeLimits = {}): T {
  const maxBytes = limits.maxBytes ?? MAX_BYTES;
  if (bytes.length > maxBytes) throw damaged(`it has ${bytes.length} bytes, more than the ${maxBytes} allowed`);
  if (bytes.length <= HEADER || bytes[0] !== MAGIC_0 || bytes[1] !== MAGIC_1)
    throw damaged("it is not a Troupe record");
  if (bytes[2] !== VERSION) {
    throw new TroupeError(
      "snapshot_version_unknown",
      `This record has format version ${bytes[2]}; this release reads version ${VERSION}.`,
      {
        details: { found: bytes[2], known: VERSION },
      },
    );
  }
  checkShape(bytes, limits.maxDepth ?? MAX_DEPTH);
  try {
    return packr.unpack(bytes.subarray(HEADER)) as T;
  } catch (cause) {
    throw damaged(messageOf(cause));
  }
}

/** The name of a stored component: the same content has the same name. */
export function contentHash(bytes: Uint8Array): string {
  return createHash("sha256").update(bytes).digest("base64url");
}

function damaged(why: string): TroupeError {
  return new TroupeError("snapshot_damaged", `A stored record cannot be read: ${why}.`);
}

function findUnfit(value: unknown, path: string, depth: number): string | undefined {
  const at = path === "" ? "the value" : path;
  if (depth > MAX_DEPTH) return `${at} is nested deeper than ${MAX_DEPTH} levels or refers to itself`;
  if (typeof value === "function" || typeof value === "symbol") return `${at} is a ${typeof value}`;
  if (typeof value !== "object" || value === null) return undefined;
  if (Array.isArray(value)) {
    for (let i = 0; i < value.length; i++) {
      const problem = findUnfit(value[i], `${path}[${i}]`, depth + 1);
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
    const problem = findUnfit((value as Record<string, unknown>)[key], path === "" ? key : `${path}.${key}`, depth + 1);
    if (problem !== undefined) return problem;
  }
  return undefined;
}

/** Walks the msgpack structure without building anything: depth, truncation and trailing bytes are seen here. */
function checkShape(bytes: Uint8Array, maxDepth: number): void {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const end = bytes.length;
  /** Values still expected at each open level. */
  const open: number[] = [1];
  let at = HEADER;
  const need = (count: number) => {
    if (at + count > end) throw damaged("it ends too early");
  };
  const container = (count: number) => {
    if (count > end - at) throw damaged("it claims more values than it has bytes");
    if (count === 0) return;
    if (open.length > maxDepth) throw damaged(`it is nested deeper than ${maxDepth} levels`);
    open.push(count);
  };
  const skip = (count: number) => {
    need(count);
    at += count;
  };
  const length = (width: 1 | 2 | 4): number => {
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
    else
      switch (token) {
        case 0xc0:
        case 0xc2:
        case 0xc3:
          break;
        case 0xc4:
        case 0xd9:
          skip(length(1));
          break;
        case 0xc5:
        case 0xda:
          skip(length(2));
          break;
        case 0xc6:
        case 0xdb:
          skip(length(4));
          break;
        case 0xc7:
          skip(length(1) + 1);
          break;
        case 0xc8:
          skip(length(2) + 1);
          break;
        case 0xc9:
          skip(length(4) + 1);
          break;
        case 0xcc:
        case 0xd0:
          skip(1);
          break;
        case 0xcd:
        case 0xd1:
          skip(2);
          break;
        case 0xca:
        case 0xce:
        case 0xd2:
          skip(4);
          break;
        case 0xcb:
        case 0xcf:
        case 0xd3:
          skip(8);
          break;
        case 0xd4:
        case 0xd5:
        case 0xd6:
        case 0xd7:
        case 0xd8:
          skip(1 + (1 << (token - 0xd4)));
          break;
        case 0xdc:
          container(length(2));
          break;
        case 0xdd:
          container(length(4));
          break;
        case 0xde:
          container(length(2) * 2);
          break;
        case 0xdf:
          container(length(4) * 2);
          break;
        default:
          throw damaged(`it contains the unknown token 0x${token.toString(16)}`);
      }
  }
  if (at !== end) throw damaged("it has bytes behind its end");
}
