import { canonicalJson, isRecord, messageOf, type RowWrite, TroupeError } from "../../kernel/index.js";
import { MAX_SHARED_BYTES, MAX_SHARED_KEYS, QUERY_HOST, SHARED } from "../../plugin/index.js";
import { countOf, SHARED_COUNTS, SHARED_STATE, sharedRowKey } from "../../store/index.js";
import { decode } from "../../wire/index.js";
import {
  isSharedKey,
  type SharedAnswer,
  type SharedRow,
  sharedStateInvalid,
  sharedUnavailable,
} from "../plugin-thread/index.js";
import type { AskingCall, HostRequest } from "../plugins/index.js";
import type { Session } from "../state/index.js";
import { invalidHostCall } from "./immediate-directives.js";

type SharedRequest = Pick<HostRequest, "pluginId" | "granted" | "args" | "asking">;

/**
 * Answers `context.shared`: what a plugin's thread says of the state is looked at here, and the plugin it is stored for is
 * the one whose call it is. An update of a hook is one of the services that are done once: with a journal its row is
 * stored in one write with the answer, so that a hook that is made again is answered and does not count twice.
 */
export async function serveShared(session: Session, request: SharedRequest): Promise<SharedAnswer> {
  const [step, ...given] = request.args;
  if (step === "read") return { row: await storedRow(session, request.pluginId, keyIn(given[0])) };
  if (request.granted === QUERY_HOST)
    throw sharedUnavailable(
      request.pluginId,
      "a query only reads shared state; change it in a command, an action, a tool or a hook",
    );
  if (step === "begin") return begin(session, request, keyIn(given[0]));
  if (step !== "write") throw invalidHostCall(SHARED, "it is none of read, begin and write");
  return write(session, request, { nth: Number(given[0]), key: keyIn(given[1]), version: given[2], state: given[3] });
}

async function begin(session: Session, { pluginId, asking }: SharedRequest, key: string): Promise<SharedAnswer> {
  if (asking === undefined) return { row: await storedRow(session, pluginId, key) };
  const { nth, before } = asking.begin({ method: SHARED, args: [key], signal: undefined });
  const journaled = journalStep(session, asking, { nth, key });
  const known = (await before) ?? journaled?.journal.find<Recorded>(journaled.key, journaled.envelope())?.shared;
  if (known !== undefined) {
    asking.answer(nth, Promise.resolve(known));
    return { nth, done: known };
  }
  return { nth, row: await storedRow(session, pluginId, key) };
}

interface Given {
  readonly nth: number;
  readonly key: string;
  readonly version: unknown;
  readonly state: unknown;
}

async function write(
  session: Session,
  { pluginId, asking }: SharedRequest,
  { nth, key, version, state }: Given,
): Promise<SharedAnswer> {
  if (!Number.isSafeInteger(version) || (version as number) < 0)
    throw invalidHostCall(SHARED, "it does not say over which version it writes");
  const change = { pluginId, key, version: version as number, state: checkedState(pluginId, state) };
  try {
    if (asking === undefined) {
      await session.services.store.changeRows({ changes: await changesOf(session, change) });
      return {};
    }
    if (!asking.isBegun(nth, { method: SHARED, args: [key] })) throw invalidHostCall(SHARED, "it was not begun");
    const stored = store(session, asking, { ...change, nth });
    asking.answer(nth, stored);
    const done = await stored;
    return done === change.state ? {} : { done };
  } catch (error) {
    if (!(error instanceof TroupeError) || error.code !== "row_conflict") throw error;
    return { row: await storedRow(session, pluginId, key) };
  }
}

interface SharedChange {
  readonly pluginId: string;
  readonly key: string;
  readonly version: number;
  readonly state: Uint8Array;
}

/** What the journal has of an update. */
interface Recorded {
  readonly shared: Uint8Array;
}

/** With a journal in the same write as the answer of the call; resolves with what counts. */
async function store(
  session: Session,
  asking: AskingCall,
  change: SharedChange & { readonly nth: number },
): Promise<Uint8Array> {
  const rows = await changesOf(session, change);
  const step = journalStep(session, asking, change);
  if (step === undefined) {
    await session.services.store.changeRows({ changes: rows });
    return change.state;
  }
  const { journal, key, envelope } = step;
  const run = (): Recorded => ({ shared: change.state });
  return (await journal.once<Recorded>({ key, envelope, run, rows })).shared;
}

/** Where the journal of a turn has an update; undefined when nothing is written down of the call. */
function journalStep(session: Session, asking: AskingCall, { nth, key }: { nth: number; key: string }) {
  const turn = session.life.unstoredTurn;
  if (turn === undefined || asking.place === undefined || !session.services.journals) return undefined;
  const { journal } = turn;
  return {
    journal,
    key: `host:${asking.name((place) => journal.number(place))}:${nth}`,
    envelope: () => ({ method: SHARED, args: [key] }),
  };
}

/** The row, and one key more when there was none. */
async function changesOf(
  { services: { store } }: Session,
  { pluginId, key, version, state }: SharedChange,
): Promise<RowWrite[]> {
  const row = { table: SHARED_STATE, key: sharedRowKey(pluginId, key), value: state, expectedVersion: version };
  if (version > 0) return [row];
  const count = countOf(await store.rows({ table: SHARED_COUNTS, prefix: pluginId, limit: 1 }), pluginId);
  if (count >= MAX_SHARED_KEYS)
    throw new TroupeError(
      "shared_full",
      `Plugin ${pluginId} has shared state under ${count} keys, and may have no more. Delete some: troupe.shared.delete("${pluginId}", key).`,
      { details: { pluginId, keys: count } },
    );
  return [row, { table: SHARED_COUNTS, key: pluginId, add: [1] }];
}

/** Of rows whose keys begin with a text, the one that is it comes first. */
async function storedRow({ services: { store } }: Session, pluginId: string, key: string): Promise<SharedRow> {
  const name = sharedRowKey(pluginId, key);
  const [row] = await store.rows({ table: SHARED_STATE, prefix: name, limit: 1 });
  return row !== undefined && row.key === name
    ? { version: row.version, state: row.value }
    : { version: 0, state: null };
}

function keyIn(key: unknown): string {
  if (isSharedKey(key)) return key;
  throw invalidHostCall(SHARED, `${canonicalJson(String(key).slice(0, 40))} is no key`);
}

/** Copied and looked at: the sender may have kept the memory, and bytes nobody can read would be everybody's state. */
function checkedState(pluginId: string, given: unknown): Uint8Array {
  const refuse = (why: string, cause?: unknown) => sharedStateInvalid(pluginId, why, cause);
  if (!(given instanceof Uint8Array)) throw refuse("it is no byte array");
  if (given.byteLength > MAX_SHARED_BYTES)
    throw refuse(`it has ${given.byteLength} bytes, more than the ${MAX_SHARED_BYTES} a key may have`);
  const state = new Uint8Array(given);
  let record: unknown;
  try {
    record = decode(state);
  } catch (cause) {
    throw refuse(messageOf(cause), cause);
  }
  if (!isRecord(record) || typeof record.version !== "string") throw refuse("it names no version");
  return state;
}
