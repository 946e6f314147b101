import {
  fingerprint,
  knownInstead,
  type PendingCall,
  type Row,
  type RowName,
  type TroupeError,
  WAITING_CALLS,
  WAITING_OF_TENANTS,
} from "../../kernel/index.js";
import { decode } from "../../wire/index.js";
import type { StoreBackend } from "./contract.js";
import { invalidList } from "./listing.js";

/** Which of the calls that wait for an answer are wanted; without anything, all of them, the longest waiting first. */
export interface PendingRequest {
  /** Only those of this session. */
  readonly sessionId?: string;
  /** Only those of sessions of this tenant. */
  readonly tenant?: string;
  /** Where the page begins: the `next` of the page before, asked for with the same filters. */
  readonly after?: string | undefined;
  /** How many at most, up to 1,000. Default 100. */
  readonly limit?: number;
}

export interface PendingPage {
  readonly calls: readonly PendingCall[];
  /** What the next page is asked for with (`after`); null when there is none. */
  readonly next: string | null;
}

const MAX_LIMIT = 1_000;
const MAX_TEXT = 2_000;
const KNOWN: readonly string[] = ["sessionId", "tenant", "after", "limit"];

type WaitingReader = Pick<StoreBackend, "row" | "rows" | "rowsInOrder">;

/**
 * A page of the calls that wait, over all sessions of a store. It costs as much as the page has calls; with both filters,
 * as much as the session has.
 */
export async function listWaiting(backend: WaitingReader, request: PendingRequest): Promise<PendingPage> {
  const { sessionId, tenant, limit, after } = checkPendingRequest(request);
  if (sessionId !== undefined) {
    const rows = await backend.rows({ table: WAITING_CALLS, session: sessionId, limit: MAX_LIMIT });
    return pageOfWaiting(rows.map(callOf), request);
  }
  const [table, owner] = tenant === undefined ? [WAITING_CALLS, {}] : [WAITING_OF_TENANTS, { owner: tenant }];
  const from = after && { after: placeOf(after, table, tenant) };
  // One more than the page has: so there is a next one.
  const places = await backend.rowsInOrder({ table, ...owner, ...from, limit: limit + 1 });
  const calls: PendingCall[] = [];
  for (const place of places.slice(0, limit)) {
    const row = tenant === undefined ? place : await backend.row({ ...nameOf(place), table: WAITING_CALLS });
    // Answered since its place was read.
    if (row !== undefined) calls.push(callOf(row));
  }
  const last = places.length > limit ? places[limit - 1] : undefined;
  return { calls, next: last === undefined ? null : cursorOf(last) };
}

/** The same over calls that are at hand. */
export function pageOfWaiting(all: readonly PendingCall[], request: PendingRequest): PendingPage {
  const { sessionId, tenant, limit, after } = checkPendingRequest(request);
  const from = after === undefined ? undefined : readCursor(after);
  const wanted = all
    .filter((call) => sessionId === undefined || call.sessionId === sessionId)
    .filter((call) => tenant === undefined || call.tenant === tenant)
    .filter((call) => from === undefined || byPlace(placeOfCall(call), from) > 0)
    .sort((a, b) => byPlace(placeOfCall(a), placeOfCall(b)));
  const last = wanted.length > limit ? wanted[limit - 1] : undefined;
  return { calls: wanted.slice(0, limit), next: last === undefined ? null : written(placeOfCall(last)) };
}

/** The request, complete. Throws `invalid_list` for anything else. */
export function checkPendingRequest(request: PendingRequest): PendingRequest & { readonly limit: number } {
  if (typeof request !== "object" || request === null)
    throw invalidPending("what is wanted is an object with sessionId, tenant, after or limit");
  const stranger = Object.keys(request).find((name) => !KNOWN.includes(name));
  // A filter that is not known would list more than is wanted.
  if (stranger !== undefined) throw invalidPending(`there is no filter ${stranger}. ${knownInstead(stranger, KNOWN)}`);
  const { limit = 100, sessionId, tenant, after } = request;
  if (!Number.isInteger(limit) || limit < 1 || limit > MAX_LIMIT)
    throw invalidPending(`limit is a whole number from 1 to ${MAX_LIMIT}`);
  for (const [name, text] of Object.entries({ sessionId, tenant, after }))
    if (text !== undefined && (typeof text !== "string" || text === "" || text.length > MAX_TEXT))
      throw invalidPending(`${name} is a text that is not empty, of up to ${MAX_TEXT} characters`);
  if (after !== undefined) readCursor(after);
  return { ...request, limit };
}

function invalidPending(why: string): TroupeError {
  return invalidList(why, "Calls that wait");
}

function callOf({ value }: Row): PendingCall {
  return decode<PendingCall>(value);
}

/** Where a call stands among those that wait. */
interface Place {
  readonly at: number;
  readonly key: string;
  readonly session: string;
}

function nameOf({ session, key }: Row): Omit<RowName, "table"> {
  return { key, ...(session !== undefined && { session }) };
}

function cursorOf({ key, session = "", order }: Row): string {
  return written({ at: order?.at ?? 0, key, session });
}

function placeOfCall({ since, key, sessionId }: PendingCall): Place {
  return { at: since, key: fingerprint(key).toString(36), session: sessionId };
}

function written({ at, key, session }: Place): string {
  return `${at}:${key}:${session}`;
}

function readCursor(cursor: string): Place {
  const [, at, key, session] = /^(\d{1,16}):([0-9a-z]{1,16}):(.+)$/s.exec(cursor) ?? [];
  if (at === undefined || key === undefined || session === undefined || !Number.isSafeInteger(Number(at)))
    throw invalidPending("after is what the page before gave as next");
  return { at: Number(at), key, session };
}

function placeOf(cursor: string, table: string, tenant: string | undefined) {
  const { at, key, session } = readCursor(cursor);
  return { table, key, session, order: { at, ...(tenant !== undefined && { owner: tenant }) } };
}

function byPlace(a: Place, b: Place): number {
  if (a.at !== b.at) return a.at - b.at;
  if (a.session !== b.session) return a.session < b.session ? -1 : 1;
  return a.key === b.key ? 0 : a.key < b.key ? -1 : 1;
}
