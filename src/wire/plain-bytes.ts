/**
 * What a record may hold (`encodeState`), written into memory that is there already: a tenth of what msgpack takes for small
 * data, because nothing is checked that only matters for records that are kept, and nothing is allocated. For bytes that
 * live as long as their threads.
 */
const NULL = 0;
const UNDEFINED = 1;
const FALSE = 2;
const TRUE = 3;
const INTEGER = 4;
const FLOAT = 5;
const TEXT = 6;
const LIST = 7;
const RECORD = 8;
const DATE = 9;
const BYTES = 10;
const BIGINT = 11;
const LARGE_BIGINT = 12;
const MOST_LEVELS = 128;
const MOST = 0xffff;
const MOST_TEXT = 0x3fff;
/** How text is written: one byte for each character, two, or as UTF-8. */
const NARROW = 0;
const WIDE = 1;
const UTF8 = 2;
const LONG = 50;

/** A value ends behind its place: it may fit a larger one. */
export const NO_ROOM = -1;
/** A value has something in it that no record may hold. */
export const NOT_PLAIN = -2;

/** Where values can be written. */
export class PlainWriter {
  readonly #view: DataView;
  readonly #bytes: Buffer;
  #at = 0;
  #end = 0;
  #hasRoom = true;

  constructor(view: DataView) {
    this.#view = view;
    this.#bytes = Buffer.from(view.buffer, view.byteOffset, view.byteLength);
  }

  /** Writes a value from one place to another at most; answers where it ends, or what is wrong with it. */
  write(value: unknown, from: number, end: number): number {
    this.#at = from;
    this.#end = end;
    this.#hasRoom = true;
    if (this.#write(value, 0)) return this.#at;
    return this.#hasRoom ? NOT_PLAIN : NO_ROOM;
  }

  #full(): false {
    this.#hasRoom = false;
    return false;
  }

  #write(value: unknown, level: number): boolean {
    const view = this.#view;
    // The longest value of fixed length has nine bytes.
    if (this.#at + 9 > this.#end) return this.#full();
    switch (typeof value) {
      case "number":
        if ((value | 0) === value && (value !== 0 || 1 / value > 0)) {
          view.setUint8(this.#at, INTEGER);
          view.setInt32(this.#at + 1, value);
          this.#at += 5;
        } else {
          view.setUint8(this.#at, FLOAT);
          view.setFloat64(this.#at + 1, value);
          this.#at += 9;
        }
        return true;
      case "string":
        view.setUint8(this.#at++, TEXT);
        return this.#text(value);
      case "boolean":
        view.setUint8(this.#at++, value ? TRUE : FALSE);
        return true;
      case "undefined":
        view.setUint8(this.#at++, UNDEFINED);
        return true;
      case "object":
        if (value !== null) return level < MOST_LEVELS && this.#many(value, level + 1);
        view.setUint8(this.#at++, NULL);
        return true;
      case "bigint":
        return this.#bigint(value);
      default:
        return false;
    }
  }

  #bigint(value: bigint): boolean {
    const fits = BigInt.asIntN(64, value) === value;
    if (!fits && BigInt.asUintN(64, value) !== value) return false;
    this.#view.setUint8(this.#at, fits ? BIGINT : LARGE_BIGINT);
    this.#view.setBigInt64(this.#at + 1, value);
    this.#at += 9;
    return true;
  }

  #many(value: object, level: number): boolean {
    const view = this.#view;
    if (Array.isArray(value)) {
      if (value.length > MOST) return this.#full();
      view.setUint8(this.#at, LIST);
      view.setUint16(this.#at + 1, value.length);
      this.#at += 3;
      for (let n = 0; n < value.length; n++) if (!this.#write(value[n], level)) return false;
      return true;
    }
    const prototype: unknown = Object.getPrototypeOf(value);
    if (prototype !== Object.prototype && prototype !== null) return this.#special(value);
    view.setUint8(this.#at, RECORD);
    const start = this.#at + 1;
    this.#at += 3;
    let count = 0;
    for (const key in value) {
      if (key === "__proto__" || !this.#text(key) || !this.#write((value as Record<string, unknown>)[key], level))
        return false;
      count++;
    }
    if (count > MOST) return this.#full();
    view.setUint16(start, count);
    return true;
  }

  #special(value: object): boolean {
    const view = this.#view;
    if (value instanceof Date) {
      view.setUint8(this.#at, DATE);
      view.setFloat64(this.#at + 1, value.getTime());
      this.#at += 9;
      return true;
    }
    if (!(value instanceof Uint8Array)) return false;
    const { length } = value;
    if (length > MOST || this.#at + 3 + length > this.#end) return this.#full();
    view.setUint8(this.#at, BYTES);
    view.setUint16(this.#at + 1, length);
    this.#at += 3;
    for (let n = 0; n < length; n++) view.setUint8(this.#at++, value[n] as number);
    return true;
  }

  /** What its length says, and how it is written; then the text. */
  #text(text: string): boolean {
    const view = this.#view;
    const { length } = text;
    if (length > LONG && text.isWellFormed()) return this.#longText(text);
    if (length > MOST_TEXT || this.#at + 2 + length > this.#end) return this.#full();
    view.setUint16(this.#at, (length << 2) | NARROW);
    let at = this.#at + 2;
    for (let n = 0; n < length; n++, at++) {
      const code = text.charCodeAt(n);
      if (code > 0xff) return this.#wideText(text);
      view.setUint8(at, code);
    }
    this.#at = at;
    return true;
  }

  #wideText(text: string): boolean {
    const view = this.#view;
    const { length } = text;
    if (this.#at + 2 + 2 * length > this.#end) return this.#full();
    view.setUint16(this.#at, (length << 2) | WIDE);
    let at = this.#at + 2;
    for (let n = 0; n < length; n++, at += 2) view.setUint16(at, text.charCodeAt(n));
    this.#at = at;
    return true;
  }

  /** A call into Node costs as much as some fifty characters. */
  #longText(text: string): boolean {
    const length = Buffer.byteLength(text);
    if (length > MOST_TEXT || this.#at + 2 + length > this.#end) return this.#full();
    this.#view.setUint16(this.#at, (length << 2) | UTF8);
    this.#bytes.write(text, this.#at + 2, length);
    this.#at += 2 + length;
    return true;
  }
}

/** What was written; throws a RangeError or TypeError when it is no such bytes. */
export function readPlain(bytes: Uint8Array): unknown {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const utf8 = (part: Uint8Array) => Buffer.from(part.buffer, part.byteOffset, part.byteLength).toString();
  let at = 0;
  const text = (): string => {
    const stated = view.getUint16(at);
    at += 2;
    const length = stated >> 2;
    const form = stated & 3;
    if (form === UTF8) {
      at += length;
      if (at > bytes.byteLength) throw new RangeError("It ends too early.");
      return utf8(bytes.subarray(at - length, at));
    }
    let read = "";
    for (const end = at + length * (1 + form); at < end; at += 1 + form)
      read += String.fromCharCode(form === NARROW ? view.getUint8(at) : view.getUint16(at));
    return read;
  };
  const value = (level: number): unknown => {
    if (level > MOST_LEVELS) throw new TypeError("Too many levels.");
    switch (view.getUint8(at++)) {
      case NULL:
        return null;
      case UNDEFINED:
        return undefined;
      case FALSE:
        return false;
      case TRUE:
        return true;
      case INTEGER:
        at += 4;
        return view.getInt32(at - 4);
      case FLOAT:
        at += 8;
        return view.getFloat64(at - 8);
      case TEXT:
        return text();
      case LIST: {
        const length = view.getUint16(at);
        at += 2;
        const list: unknown[] = [];
        while (list.length < length) list.push(value(level + 1));
        return list;
      }
      case RECORD: {
        const count = view.getUint16(at);
        at += 2;
        const record: Record<string, unknown> = {};
        for (let n = 0; n < count; n++) {
          const key = text();
          if (key === "__proto__") throw new TypeError("A key is __proto__.");
          record[key] = value(level + 1);
        }
        return record;
      }
      case DATE:
        at += 8;
        return new Date(view.getFloat64(at - 8));
      case BYTES: {
        const length = view.getUint16(at);
        at += 2 + length;
        if (at > bytes.byteLength) throw new RangeError("It ends too early.");
        return bytes.slice(at - length, at);
      }
      case BIGINT:
        at += 8;
        return view.getBigInt64(at - 8);
      case LARGE_BIGINT:
        at += 8;
        return view.getBigUint64(at - 8);
      default:
        throw new TypeError("No value begins so.");
    }
  };
  const read = value(0);
  if (at !== bytes.byteLength) throw new TypeError("There is more than a value.");
  return read;
}
