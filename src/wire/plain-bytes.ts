/**
 * Small plain data written into memory that is there already: a tenth of what msgpack takes, because nothing is checked
 * that only matters for records that are kept, and nothing is allocated. For bytes that live as long as their threads.
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
const MOST_LEVELS = 8;
const MOST = 0xffff;

/** Where a value can be written. */
export class PlainWriter {
  readonly #view: DataView;
  readonly #end: number;
  #at: number;

  constructor(view: DataView, from: number, end: number) {
    this.#view = view;
    this.#at = from;
    this.#end = end;
  }

  /** Writes a value; answers where it ends, or -1 when it does not fit or is not plain data of few levels. */
  write(value: unknown, from: number): number {
    this.#at = from;
    return this.#write(value, 0) ? this.#at : -1;
  }

  #write(value: unknown, level: number): boolean {
    const view = this.#view;
    // The longest value of fixed length has nine bytes.
    if (this.#at + 9 > this.#end) return false;
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
      default:
        return false;
    }
  }

  #many(value: object, level: number): boolean {
    const view = this.#view;
    if (Array.isArray(value)) {
      if (value.length > MOST) return false;
      view.setUint8(this.#at, LIST);
      view.setUint16(this.#at + 1, value.length);
      this.#at += 3;
      for (let n = 0; n < value.length; n++) if (!this.#write(value[n], level)) return false;
      return true;
    }
    const prototype: unknown = Object.getPrototypeOf(value);
    if (prototype !== Object.prototype && prototype !== null) return false;
    view.setUint8(this.#at, RECORD);
    const start = this.#at + 1;
    this.#at += 3;
    let count = 0;
    for (const key in value) {
      if (key === "__proto__" || !this.#text(key) || !this.#write((value as Record<string, unknown>)[key], level))
        return false;
      count++;
    }
    if (count > MOST) return false;
    view.setUint16(start, count);
    return true;
  }

  #text(text: string): boolean {
    const view = this.#view;
    const { length } = text;
    if (length > MOST || this.#at + 2 + 2 * length > this.#end) return false;
    view.setUint16(this.#at, length);
    let at = this.#at + 2;
    for (let n = 0; n < length; n++, at += 2) view.setUint16(at, text.charCodeAt(n));
    this.#at = at;
    return true;
  }
}

/** What was written; throws a RangeError or TypeError when it is no such bytes. */
export function readPlain(bytes: Uint8Array): unknown {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  let at = 0;
  const text = (): string => {
    const length = view.getUint16(at);
    at += 2;
    let read = "";
    for (let n = 0; n < length; n++, at += 2) read += String.fromCharCode(view.getUint16(at));
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
      default:
        throw new TypeError("No value begins so.");
    }
  };
  const read = value(0);
  if (at !== bytes.byteLength) throw new TypeError("There is more than a value.");
  return read;
}
