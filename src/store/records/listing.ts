import { asTroupeError, isRecord, knownInstead, type StoredHead, sentence, TroupeError } from "../../kernel/index.js";
import { unansweredIn } from "./awaited.js";
import type { IndexedSession, StoreBackend } from "./contract.js";

/**
 * Which sessions are wanted; without anything, all of them by id. What each costs:
 *
 * - `order: "changed"`, `changedSince` and `changedBefore` with it, are served by the store's index: a page costs as much
 *   as it has sessions. The index is of one `tenant`, or of the sessions that have none.
 * - `prefix` with `order: "id"` costs as much as the page has sessions.
 * - Everything else (`tenant` by id, `state`, `metadata`, `prefix` by change, times by id) looks at one head after the
 *   other. One call looks at up to 1,000, and then answers with what it found: such a page may be short, or empty, and
 *   have a `next` all the same.
 */
export interface ListRequest {
  /** Where the page begins: the `next` of the page before, asked for with the same filters and order. */
  readonly after?: string | undefined;
  /** How many at most, up to 1,000. Default 100. */
  readonly limit?: number;
  /** Only ids that begin with this. */
  readonly prefix?: string;
  /** Only sessions of this tenant. */
  readonly tenant?: string;
  /**
   * `unfinished`: a turn of it was begun and is not stored yet, or turns wait in it. `waiting`: such a turn has a call that
   * waits for an answer from outside. Both are known of turns that are journaled.
   */
  readonly state?: SessionWorkState;
  /** Written at this time or later, in milliseconds by the store's clock. */
  readonly changedSince?: number;
  /** Written before this time. */
  readonly changedBefore?: number;
  /** Only sessions whose metadata has all of these. */
  readonly metadata?: Readonly<Record<string, string>>;
  /** `id`: in the order of the ids' bytes. `changed`: the last written first, to the second. Default `id`. */
  readonly order?: "id" | "changed";
  /** The same as `order`. */
  readonly orderBy?: "id" | "changed";
}

export type SessionWorkState = "idle" | "unfinished" | "waiting";

/** A session as the store has it. One whose first turn is not stored yet is not listed. */
export interface StoredSession {
  readonly id: string;
  readonly turns: number;
  readonly revision: number;
  /** When it was last written, in milliseconds by the store's clock; 0 where an older release did not say. */
  readonly changedAt: number;
  readonly state: SessionWorkState;
  /** The session it was forked from or created by. */
  readonly parent?: string;
  readonly tenant?: string;
  readonly metadata?: Readonly<Record<string, string>>;
  /** Its agent, with its version. */
  readonly agent?: string;
  /** Why its record cannot be read; the counts are 0 then. Not listed where a filter would have to read it. */
  readonly damaged?: string;
}

export interface SessionPage {
  readonly sessions: readonly StoredSession[];
  /** What the next page is asked for with (`after`); null when there is none. */
  readonly next: string | null;
}

type ListedBackend = Pick<StoreBackend, "keys" | "storedHead" | "journal" | "sessionsInOrder">;

const MAX_LIMIT = 1_000;
/** Of what a session's id, and the time in a cursor, have room in. */
const MAX_TEXT = 300;
/** Heads that are looked at before somebody else has the thread, and in one call. */
const STEP = 500;
const MAX_LOOKED_AT = 1_000;

/**
 * A page of a store's sessions. One that cannot be read is listed as that, and does not keep the others from being seen.
 * `pause` is awaited now and then while many heads are looked at; it may throw to end the listing.
 *
 * @example
 * const { sessions, next } = await listStored(backend, { tenant: "acme", order: "changed", limit: 20 });
 */
export async function listStored(
  backend: ListedBackend,
  asked: ListRequest,
  pause: () => Promise<void> = async () => {},
): Promise<SessionPage> {
  const request = checkListRequest(asked);
  const { limit = 100, order = "id" } = request;
  const source = order === "changed" ? byChange(backend, request) : byId(backend, request);
  const sessions: StoredSession[] = [];
  let last: string | null = null;
  let looked = 0;
  for await (const { id, at, cursor } of source) {
    // One more than the page has: so there is a next one.
    if (sessions.length === limit || looked === MAX_LOOKED_AT) return { sessions, next: last };
    const session = await listed(backend, { id, at }, request);
    if (session !== undefined) sessions.push(session);
    last = cursor;
    if (++looked % STEP === 0) await pause();
  }
  return { sessions, next: null };
}

/** A session that may be wanted, and what a page that begins behind it is asked for with. */
interface Candidate {
  readonly id: string;
  /** When it was written, where the index said so. */
  readonly at?: number | undefined;
  readonly cursor: string;
}

async function* byId(backend: ListedBackend, request: ListRequest): AsyncGenerator<Candidate> {
  const { after, prefix = "" } = request;
  const step = stepOf(request);
  const isBefore = after === undefined || byUtf8(after, prefix) < 0;
  // Keys are asked for behind one, and the prefix may be an id itself.
  if (isBefore && prefix !== "") yield { id: prefix, cursor: prefix };
  for (let from = isBefore && prefix !== "" ? prefix : after; ; ) {
    const ids = await backend.keys("heads", from, step);
    for (const id of ids) {
      if (!id.startsWith(prefix)) return;
      yield { id, cursor: id };
    }
    if (ids.length < step) return;
    from = ids.at(-1);
  }
}

async function* byChange(backend: ListedBackend, request: ListRequest): AsyncGenerator<Candidate> {
  const { after, tenant, changedSince, changedBefore } = request;
  const step = stepOf(request);
  const range = {
    reverse: true,
    limit: step,
    ...(tenant !== undefined && { tenant }),
    ...(changedSince !== undefined && { from: changedSince }),
    ...(changedBefore !== undefined && { until: changedBefore }),
  };
  for (let from = after === undefined ? undefined : readCursor(after); ; ) {
    const places = await backend.sessionsInOrder({ ...range, ...(from !== undefined && { after: from }) });
    for (const place of places) yield { id: place.sessionId, at: place.at, cursor: cursorOf(place) };
    if (places.length < step) return;
    from = places.at(-1);
  }
}

/** How many are asked for at once: where heads decide, more than the page has room for. */
function stepOf(request: ListRequest): number {
  const { limit = 100, order = "id", prefix } = request;
  const isFiltered = mustRead(request) || (order === "changed" && prefix !== undefined);
  return isFiltered ? STEP : Math.min(limit + 1, STEP);
}

function cursorOf({ sessionId, at }: IndexedSession): string {
  return `${at}:${sessionId}`;
}

function readCursor(cursor: string): IndexedSession {
  const [, at, sessionId] = /^(\d{1,16}):(.+)$/s.exec(cursor) ?? [];
  if (at === undefined || sessionId === undefined || !Number.isSafeInteger(Number(at)))
    throw invalidList("after is what the page before gave as next, in the same order");
  return { sessionId, at: Number(at) };
}

/** The session as it is listed, if it is wanted. */
async function listed(
  backend: ListedBackend,
  { id, at }: Omit<Candidate, "cursor">,
  request: ListRequest,
): Promise<StoredSession | undefined> {
  const { prefix = "", state: wanted } = request;
  if (!id.startsWith(prefix)) return undefined;
  let stored: StoredHead | undefined;
  try {
    stored = await backend.storedHead(id);
  } catch (error) {
    if (mustRead(request)) return undefined;
    const state = await stateOf(backend, id);
    const damaged = asTroupeError(error, "store_damaged").code;
    return { id, turns: 0, revision: 0, changedAt: at ?? 0, state, damaged };
  }
  // Deleted since it was found, or none.
  if (stored === undefined || !isWanted(stored, request)) return undefined;
  const state = await stateOf(backend, id);
  // What waits is unfinished too.
  if (wanted !== undefined && state !== wanted && !(wanted === "unfinished" && state === "waiting")) return undefined;
  const { turnIndex: turns, revision, parent, tenant, metadata, agent } = stored.head;
  return {
    id,
    turns,
    revision,
    changedAt: stored.at,
    state,
    ...(parent && { parent: parent.sessionId }),
    ...(tenant !== undefined && { tenant }),
    ...(metadata !== undefined && { metadata }),
    ...(agent !== undefined && { agent }),
  };
}

/** Can only a head tell whether it is wanted? By change, the index has told tenant and times. */
function mustRead({ order, tenant, changedSince, changedBefore, metadata, state }: ListRequest): boolean {
  const byHead = order === "changed" ? [metadata, state] : [metadata, state, tenant, changedSince, changedBefore];
  return byHead.some((filter) => filter !== undefined);
}

function isWanted({ head, at }: StoredHead, request: ListRequest): boolean {
  const { tenant, changedSince = 0, changedBefore = Number.POSITIVE_INFINITY, metadata = {} } = request;
  if (tenant !== undefined && head.tenant !== tenant) return false;
  if (at < changedSince || at >= changedBefore) return false;
  return Object.entries(metadata).every(([name, value]) => {
    const own = head.metadata;
    return own !== undefined && Object.hasOwn(own, name) && own[name] === value;
  });
}

async function stateOf(backend: ListedBackend, sessionId: string): Promise<SessionWorkState> {
  try {
    const rows = await backend.journal(sessionId);
    if (rows.length === 0) return "idle";
    return unansweredIn(sessionId, rows).length > 0 ? "waiting" : "unfinished";
  } catch {
    // There is one, and it cannot be read.
    return "unfinished";
  }
}

const KNOWN: readonly (keyof ListRequest)[] = [
  "after",
  "limit",
  "prefix",
  "tenant",
  "state",
  "changedSince",
  "changedBefore",
  "metadata",
  "order",
  "orderBy",
];

/** The request, complete. Throws `invalid_list` for anything else. */
export function checkListRequest(request: ListRequest): ListRequest {
  if (typeof request !== "object" || request === null) throw invalidList("what is asked for is an object");
  const stranger = Object.keys(request).find((name) => !KNOWN.includes(name as keyof ListRequest));
  // A filter that is not known would list more than is wanted.
  if (stranger !== undefined) throw invalidList(`there is no filter ${stranger}. ${knownInstead(stranger, KNOWN)}`);
  const { orderBy, ...rest } = request;
  if (orderBy !== undefined && rest.order !== undefined) throw invalidList("order and orderBy are the same; give one");
  const { after, limit = 100, prefix, tenant, state, metadata, order = orderBy ?? "id" } = rest;
  if (!Number.isInteger(limit) || limit < 1 || limit > MAX_LIMIT)
    throw invalidList(`limit is a whole number from 1 to ${MAX_LIMIT}`);
  for (const [name, text] of Object.entries({ after, prefix, tenant }))
    if (text !== undefined && (typeof text !== "string" || text.length > MAX_TEXT))
      throw invalidList(`${name} is a text of up to ${MAX_TEXT} characters`);
  if (tenant === "") throw invalidList("tenant is not empty");
  if (state !== undefined && !STATES.includes(state)) throw invalidList(`state is ${STATES.join(", ")}`);
  for (const name of ["changedSince", "changedBefore"] as const) {
    const time = request[name];
    if (time !== undefined && !(Number.isSafeInteger(time) && time >= 0))
      throw invalidList(`${name} is a whole number of milliseconds from 0`);
  }
  if (metadata !== undefined && !isTexts(metadata)) throw invalidList("metadata is an object of texts");
  if (order !== "id" && order !== "changed")
    throw invalidList(`${orderBy === undefined ? "order" : "orderBy"} is id or changed`);
  if (order === "changed" && after !== undefined) readCursor(after);
  return { ...rest, order };
}

const STATES: readonly SessionWorkState[] = ["idle", "unfinished", "waiting"];

function isTexts(value: unknown): boolean {
  return isRecord(value) && Object.values(value).every((each) => typeof each === "string");
}

/** `what`: what was to be listed. */
export function invalidList(why: string, what = "Sessions"): TroupeError {
  return new TroupeError("invalid_list", `${what} cannot be listed: ${sentence(why)}`);
}

function byUtf8(a: string, b: string): number {
  return Buffer.compare(Buffer.from(a), Buffer.from(b));
}
