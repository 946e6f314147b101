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

const MAX_TABLE = 64;
const MAX_KEY_BYTES = 400;
const MAX_OWNER_BYTES = 256;
const MAX_SESSION_BYTES = 3 * 256;

/** Refuses a change no store could keep. */
export function checkRowChange({ table, key, session, order, expectedVersion, value }: RowChange): void {
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

function invalidRow(why: string): TroupeError {
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
