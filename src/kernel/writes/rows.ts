import { TroupeError } from "../errors.js";
import { isStorableName } from "../ids.js";

/**
 * The name of a row: its table, its key, and the session it belongs to, if it belongs to one. Deleting, exporting or
 * importing a session does the same to its rows; a fork begins without any.
 */
export interface RowName {
  readonly table: string;
  readonly key: string;
  readonly session?: string;
}

/** The place of a row in lists of its table, which are sorted by owner and then by time. */
export interface RowOrder {
  /** In milliseconds, from 0. */
  readonly at: number;
  readonly owner?: string;
}

/** A record of a named table. Features keep tasks, schedules and pending answers as rows. */
export interface Row extends RowName {
  readonly value: Uint8Array;
  /** 1 when it is written first, and one more each time; a row that was removed begins anew. */
  readonly version: number;
  readonly order?: RowOrder;
}

/** One row to write or, with null, to remove. */
export interface RowChange extends RowName {
  readonly value: Uint8Array | null;
  /** Only over this version; 0: only when there is none. Refused with `row_conflict` otherwise. Absent: over any. */
  readonly expectedVersion?: number;
  readonly order?: RowOrder;
}

/**
 * Numbers to be added to those a row has, or to none: by whoever, in whatever order, nothing is counted twice or lost. The
 * row's value is these numbers (see {@link numbersIn}); one with another value is refused as `invalid_row`.
 */
export interface RowAddition extends RowName {
  readonly add: readonly number[];
  readonly order?: RowOrder;
}

/** What a write does to one row. */
export type RowWrite = RowChange | RowAddition;

const NUMBER_BYTES = 8;
const MAX_NUMBERS = 16;

/**
 * The numbers of a row that is counted up.
 *
 * @example
 * const row = await backend.row({ table: "tenant_spending", key: "day:2026-11-18:acme" });
 * const [tokens = 0, cost = 0] = row === undefined ? [] : numbersIn(row);
 */
export function numbersIn({ table, key, value }: Pick<Row, "table" | "key" | "value">): number[] {
  if (value.length % NUMBER_BYTES !== 0 || value.length > MAX_NUMBERS * NUMBER_BYTES)
    throw invalidRow(`row ${key} of ${table} has no numbers`);
  const view = new DataView(value.buffer, value.byteOffset, value.length);
  return Array.from({ length: value.length / NUMBER_BYTES }, (_, at) => view.getFloat64(at * NUMBER_BYTES));
}

/** The value of a row after an addition. Numbers it did not have count from 0. */
export function addedTo(row: Row | undefined, { add }: Pick<RowAddition, "add">): Uint8Array {
  const before = row === undefined ? [] : numbersIn(row);
  const length = Math.max(before.length, add.length);
  const view = new DataView(new ArrayBuffer(length * NUMBER_BYTES));
  for (let at = 0; at < length; at++) view.setFloat64(at * NUMBER_BYTES, (before[at] ?? 0) + (add[at] ?? 0));
  return new Uint8Array(view.buffer);
}

// No name may have control characters, so no row's key runs into another's.
const SEPARATOR = "\u007f";
const AFTER_SEPARATOR = "\u0080";

/** The rows of a session stand together, and among them those of a table. */
export function rowKey({ session = "", table, key }: RowName): string {
  return session + SEPARATOR + table + SEPARATOR + key;
}

export function rowNameOf(key: string): RowName {
  const [session = "", table = "", name = ""] = key.split(SEPARATOR);
  return { table, key: name, ...(session !== "" && { session }) };
}

/** The keys of all rows of a session, or of one table of it, lie between these. */
export function rowRange(session: string, table?: string): { readonly start: string; readonly end: string } {
  const prefix = table === undefined ? session : session + SEPARATOR + table;
  return { start: prefix + SEPARATOR, end: prefix + AFTER_SEPARATOR };
}

/** As many hexadecimal digits as the largest time has. */
const TIME_DIGITS = 14;

/** The place of a row in the order of its table. Keys sort by owner, then time, then name. */
export function orderKey({ session = "", table, key }: RowName, { at, owner = "" }: RowOrder): string {
  return [table, owner, timeKey(at), session, key].join(SEPARATOR);
}

export function orderedNameOf(placeKey: string): { readonly name: RowName; readonly order: RowOrder } {
  const [table = "", owner = "", time = "", session = "", key = ""] = placeKey.split(SEPARATOR);
  return {
    name: { table, key, ...(session !== "" && { session }) },
    order: { at: Number.parseInt(time, 16), ...(owner !== "" && { owner }) },
  };
}

/** The places of one owner's rows from one time up to, and not at, another lie between these. */
export function orderRange(
  table: string,
  { owner = "", from = 0, until }: { readonly owner?: string; readonly from?: number; readonly until?: number },
): { readonly start: string; readonly end: string } {
  const prefix = table + SEPARATOR + owner;
  return {
    start: prefix + SEPARATOR + timeKey(from),
    end: until === undefined ? prefix + AFTER_SEPARATOR : prefix + SEPARATOR + timeKey(until),
  };
}

function timeKey(at: number): string {
  return at.toString(16).padStart(TIME_DIGITS, "0");
}

/** The table whose places are those of the sessions themselves: by tenant, then by when each was last written. */
export const SESSION_INDEX = "sessions";

/** Calls that wait for an answer, each by the session's journal: who removes a journal by itself removes them too. */
export const WAITING_CALLS = "waiting_calls";
/** Where those of the sessions of a tenant stand, by tenant and time. */
export const WAITING_OF_TENANTS = "waiting_of_tenants";

/** A row of these stands for something in the session's journal. */
export function isOfJournal({ table }: Pick<RowName, "table">): boolean {
  return table === WAITING_CALLS || table === WAITING_OF_TENANTS;
}

const MAX_TABLE = 64;
const MAX_KEY_BYTES = 400;
const MAX_OWNER_BYTES = 256;
const MAX_SESSION_BYTES = 3 * 256;

/** Refuses a change no store could keep. */
export function checkRowChange(change: RowWrite): void {
  const { table, key, session, order } = change;
  if (typeof table !== "string" || !/^[a-z][a-z0-9_.:-]*$/.test(table) || table.length > MAX_TABLE)
    throw invalidRow(
      `a table's name is up to ${MAX_TABLE} small letters, digits, and _ . : -, and begins with a letter`,
    );
  if (table === SESSION_INDEX) throw invalidRow(`the table ${SESSION_INDEX} is the store's own`);
  checkName("key", key, MAX_KEY_BYTES);
  // As long as any id may be. An empty one would be nobody's row under another name.
  if (session !== undefined) checkName("session", session, MAX_SESSION_BYTES);
  if (session === "") throw invalidRow("its session has a name");
  if (order?.owner !== undefined) checkName("owner", order.owner, MAX_OWNER_BYTES);
  if (order !== undefined && !isCount(order.at)) throw invalidRow("its time is a whole number of milliseconds from 0");
  if ("add" in change) {
    const { add } = change;
    if (!Array.isArray(add) || add.length === 0 || add.length > MAX_NUMBERS || !add.every(Number.isFinite))
      throw invalidRow(`what is added is 1 to ${MAX_NUMBERS} numbers`);
    return;
  }
  const { expectedVersion, value } = change;
  if (expectedVersion !== undefined && !isCount(expectedVersion))
    throw invalidRow("its expected version is a whole number from 0");
  if (value !== null && !(value instanceof Uint8Array)) throw invalidRow("its value is bytes, or null");
}

function checkName(what: string, name: unknown, limit: number): void {
  if (typeof name !== "string" || !isStorableName(name) || utf8Length(name) > limit)
    throw invalidRow(`its ${what} is a text of up to ${limit} bytes without control characters`);
}

function utf8Length(text: string): number {
  let bytes = 0;
  for (const character of text) {
    const code = character.codePointAt(0) as number;
    bytes += code < 0x80 ? 1 : code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
  }
  return bytes;
}

function isCount(value: unknown): value is number {
  return Number.isSafeInteger(value) && (value as number) >= 0;
}

export function invalidRow(why: string): TroupeError {
  return new TroupeError("invalid_row", `A row cannot be stored: ${why}.`);
}

export function rowConflict({ table, key, session }: RowName, expected: number, actual: number): TroupeError {
  return new TroupeError(
    "row_conflict",
    `Row ${key} of ${table} is at version ${actual}, not ${expected}: somebody else changed it. Read it again.`,
    {
      retryable: true,
      details: { table, key, expected, actual, ...(session !== undefined && { sessionId: session }) },
    },
  );
}
