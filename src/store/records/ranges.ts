import { orderedNameOf, orderKey, orderRange, placeTime, rowKey, rowRange, SESSION_INDEX } from "../../kernel/index.js";
import type { IndexedSession, IndexRange, OrderRange, RowRange } from "./contract.js";

/** A part of a table in the order of its keys: from the first on, and before the end. */
export interface KeyRange {
  readonly start: string;
  readonly end: string;
  readonly limit: number;
  /** This key is not wanted: it was the last one of the page before. */
  readonly without?: string | undefined;
  readonly reverse?: boolean | undefined;
}

export function keysOfRows({ table, session = "", after, prefix, limit }: RowRange): KeyRange {
  const named = (key: string) => rowKey({ table, session, key });
  const { start, end } = rowRange(session, table);
  const without = after === undefined ? undefined : named(after);
  if (prefix === undefined || prefix === "") return { start: without ?? start, end, limit, without };
  const first = named(prefix);
  const isBehind = without !== undefined && Buffer.compare(Buffer.from(without), Buffer.from(first)) > 0;
  return { start: isBehind ? without : first, end: first + BEHIND_ANY_KEY, limit, without };
}

/** No key goes on with so many of the last character there is. */
const BEHIND_ANY_KEY = "\u{10FFFF}".repeat(101);

export function placesOfRows({ table, after, limit, reverse, ...range }: OrderRange): KeyRange {
  const without = after?.order && orderKey(after, after.order);
  return continued({ ...orderRange(table, range), limit, reverse }, without);
}

/** Sessions have their places as the rows of a table have. */
export function placesOfSessions({ tenant, after, limit, reverse, from, until }: IndexRange): KeyRange {
  const owner = tenant === undefined ? {} : { owner: tenant };
  const bounds = {
    ...owner,
    ...(from !== undefined && { from: placeTime(from) }),
    ...(until !== undefined && { until }),
  };
  const without = after && placeOfSession(after.sessionId, { ...owner, at: after.at });
  return continued({ ...orderRange(SESSION_INDEX, bounds), limit, reverse }, without);
}

export function placeOfSession(sessionId: string, order: { readonly at: number; readonly owner?: string }): string {
  return orderKey({ table: SESSION_INDEX, session: sessionId, key: "" }, order);
}

/** Below its parent's name, as rows stand below their session's. */
export function childKey(parent: string, sessionId: string): string {
  return rowRange(parent).start + sessionId;
}

export function sessionAt(place: string): IndexedSession {
  const { name, order } = orderedNameOf(place);
  return { sessionId: name.session ?? "", at: order.at };
}

function continued(range: KeyRange, without: string | undefined): KeyRange {
  if (without === undefined) return range;
  return range.reverse === true ? { ...range, end: without } : { ...range, start: without, without };
}
