import { type Clock, ignore, sleep } from "../../async/index.js";
import {
  asTroupeError,
  checkPayload,
  checkSubscription,
  checkTriggerKey,
  checkTriggerOptions,
  inputOfEvent,
  invalidTrigger,
  type Json,
  type Row,
  type RowChange,
  type RowOrder,
  type StoredSubscription,
  type SubscribeRequest,
  sameJson,
  TroupeError,
  unknownName,
  wantsEvent,
} from "../../kernel/index.js";
import type { SubscriptionView, TriggerOptions, TriggerReceipt } from "../../plugin/index.js";
import { OCCURRENCES, SUBSCRIPTIONS } from "../../store/index.js";
import { eventError } from "../../trace/index.js";
import { contentHash, decode, encode } from "../../wire/index.js";
import type { Runtime } from "../places/index.js";
import type { SessionTriggers } from "../sessions/index.js";

/** An event as it is stored until every session that wants it has it. */
interface Occurrence {
  readonly source: string;
  readonly payload: Json;
  readonly at: number;
  readonly sessions: readonly string[] | null;
  readonly matched: number;
  /** The last subscription that was looked at. */
  readonly cursor: Pick<Row, "table" | "key" | "session" | "order"> | null;
}

type TriggeredEvent = Pick<Occurrence, "source" | "payload" | "sessions">;

/** Whose call an event comes by. */
export interface EmittedBy {
  readonly sessionId: string;
  readonly pluginId: string;
  readonly asked: string | undefined;
}

/** An event for one session. */
interface Told {
  readonly trigger: string;
  /** The event's own, under which its row is. */
  readonly name: string;
  readonly nth: number;
  readonly text: string;
  /** Counts the session as told, in the write that tells it. */
  readonly taken: RowChange;
}

const PAGE = 256;
/** Sessions that a plugin's event may be for. */
const MOST_REACHED = 10_000;
const OPEN = "open";
const DONE = "done";
const REMEMBERED_MS = 7 * 24 * 3_600_000;
/** How often a session that cannot take the event is tried before the others go on. */
const ATTEMPTS = 5;
const PAUSE_MS = 250;
/** The session will never have it, or a plugin's hook does not let it in. */
const FINAL: readonly string[] = ["session_deleted", "tenant_mismatch", "input_refused"];
/** The runtime ends: what is open goes on at the next start. */
const ENDING: readonly string[] = ["closed", "store_lost"];

/**
 * Events of the outside world on their way to the sessions that subscribed. An event is stored first; each session then
 * takes it in one write with the event's cursor, so that after a crash it goes on behind the last that has it.
 */
export class Triggers implements SessionTriggers {
  readonly #runtime: Runtime;
  readonly #clock: Clock;
  readonly #underWay = new Set<Promise<unknown>>();
  #closed = false;

  constructor(runtime: Runtime) {
    this.#runtime = runtime;
    this.#clock = runtime.options.clock;
  }

  /** `open`: events were on their way when the store was closed. */
  start(open: boolean): void {
    if (open) void this.#follow(this.#goOn()).catch(ignore);
  }

  async trigger(source: string, payload: unknown, options: TriggerOptions = {}): Promise<TriggerReceipt> {
    const { key, sessions } = checkTriggerOptions(options);
    const event = await this.#checked(source, payload, sessions ?? null);
    return this.#follow(this.#bring(event, key === undefined ? undefined : { key, row: `${source}/${key}` }));
  }

  /**
   * An event that a plugin tells of: to its session and those made from it. Resolves when it is stored; one of the sessions
   * may be waiting for the call itself. A key is the plugin's own in its session; `asked` stands for one where the call may
   * be made again.
   */
  async emit(
    { sessionId, pluginId, asked }: EmittedBy,
    source: string,
    payload: unknown,
    options: TriggerOptions = {},
  ): Promise<TriggerReceipt> {
    const { key, sessions } = checkTriggerOptions(options);
    const reached = sessions ?? (await this.#store.ask("descendants", { sessionId, limit: MOST_REACHED + 1 }));
    if (reached.length > MOST_REACHED)
      throw invalidTrigger(
        `more than ${MOST_REACHED} sessions were made from this one: name those it is for in sessions`,
      );
    const event = await this.#checked(source, payload, sessions ?? [sessionId, ...reached]);
    const called = key ?? asked;
    // Of its own: a plugin neither takes the host's keys nor another plugin's.
    const own = called === undefined ? undefined : contentHash(encode([sessionId, pluginId, key ?? null, called]));
    const named = own === undefined ? undefined : { key: called as string, row: `${source}/.${own}` };
    return this.#follow(this.#bring(event, named, { waits: false }));
  }

  async subscribe(sessionId: string, source: string, request: SubscribeRequest = {}): Promise<SubscriptionView> {
    await this.#declared(source);
    const { key, stored } = checkSubscription(source, request, this.#clock.wallNow());
    const name = { table: SUBSCRIPTIONS, session: sessionId, key };
    const row = await this.#store.ask("row", name);
    const known = row && decode<StoredSubscription>(row.value);
    if (known !== undefined && sameJson(asJson({ ...stored, since: known.since }), asJson(known)))
      return { key, ...known };
    const order = { at: stored.since, owner: source };
    await this.#store.ask("changeRows", { changes: [{ ...name, value: encode(stored), order }] });
    return { key, ...stored };
  }

  async unsubscribe(sessionId: string, key: string): Promise<boolean> {
    const name = { table: SUBSCRIPTIONS, session: sessionId, key: checkTriggerKey(key) };
    if ((await this.#store.ask("row", name)) === undefined) return false;
    await this.#store.ask("changeRows", { changes: [{ ...name, value: null }] });
    return true;
  }

  async subscriptions(sessionId: string): Promise<readonly SubscriptionView[]> {
    const rows = await this.#store.ask("rows", { table: SUBSCRIPTIONS, session: sessionId, limit: 1_000 });
    return rows.map(({ key, value }) => ({ key, ...decode<StoredSubscription>(value) }));
  }

  /** Nothing new is brought; resolves when what is on its way has stopped where it is. */
  async close(): Promise<void> {
    this.#closed = true;
    await Promise.allSettled(this.#underWay);
  }

  get #store() {
    return this.#runtime.store;
  }

  #follow<T>(work: Promise<T>): Promise<T> {
    const followed = work.finally(() => this.#underWay.delete(followed));
    this.#underWay.add(followed);
    return followed;
  }

  async #declared(source: string): Promise<void> {
    const { triggers } = await this.#runtime.worker(0).service();
    const known = await triggers(undefined);
    if (known.includes(source)) return;
    const message =
      known.length === 0
        ? `No plugin declares the trigger ${JSON.stringify(source)}.`
        : unknownName(String(source), known, "The runtime", "trigger");
    throw new TroupeError("trigger_unknown", message, { details: { trigger: source } });
  }

  async #checked(source: string, payload: unknown, sessions: readonly string[] | null): Promise<TriggeredEvent> {
    const checked = checkPayload(payload);
    await this.#declared(source);
    const { checkTrigger } = await this.#runtime.worker(0).service();
    const problem = await checkTrigger({ source, payload: checked });
    if (problem !== undefined) throw invalidTrigger(`its payload does not fit ${source}: ${problem}`);
    return { source, payload: checked, sessions };
  }

  /** `named`: under which key it comes, and the row of that. Unless it waits, the sessions are told behind the answer. */
  async #bring(
    event: TriggeredEvent,
    named: { readonly key: string; readonly row: string } | undefined,
    { waits = true } = {},
  ): Promise<TriggerReceipt> {
    const name = named?.row ?? `.${this.#clock.uuid()}`;
    if (named !== undefined) {
      const before = await this.#store.ask("row", { table: OCCURRENCES, key: name });
      if (before !== undefined) return this.#replayed(before, event, named.key);
      await this.#forgetOld();
    }
    const at = this.#clock.wallNow();
    const first: Occurrence = { ...event, at, matched: 0, cursor: null };
    try {
      await this.#store.ask("changeRows", { changes: [changeOf(name, 0, first, { at, owner: OPEN })] });
    } catch (error) {
      if (!isConflict(error)) throw error;
      // Sent twice at once: the other one tells.
      const before = await this.#store.ask("row", { table: OCCURRENCES, key: name });
      if (before === undefined) throw error;
      return this.#replayed(before, event, named?.key);
    }
    if (waits) return { matched: await this.#fanOut(name, 1, first), replayed: false };
    const matched = await this.#count(first);
    void this.#follow(this.#fanOut(name, 1, first)).catch(ignore);
    return { matched, replayed: false };
  }

  #replayed(row: Row, event: TriggeredEvent, key: string | undefined): TriggerReceipt {
    const { payload, matched } = decode<Occurrence>(row.value);
    if (sameJson(payload, event.payload)) return { matched, replayed: true };
    throw new TroupeError(
      "trigger_key_conflict",
      `An event of ${event.source} came under this key with another payload.`,
      {
        details: { trigger: event.source, key },
      },
    );
  }

  /** What a crash or a closing left on its way. */
  async #goOn(): Promise<void> {
    for (let after: Row | undefined; !this.#closed; ) {
      const range = { table: OCCURRENCES, owner: OPEN, limit: PAGE, ...(after !== undefined && { after }) };
      const rows = await this.#store.ask("rowsInOrder", range);
      for (const row of rows) await this.#fanOut(row.key, row.version, decode<Occurrence>(row.value));
      if (rows.length < PAGE) return;
      after = rows.at(-1);
    }
  }

  async #count(event: Occurrence): Promise<number> {
    let matched = 0;
    for await (const _ of this.#wanting(event)) matched++;
    return matched;
  }

  /** The subscriptions that want an event, from behind its cursor on. */
  async *#wanting(event: Occurrence): AsyncGenerator<{ readonly row: Row; readonly subscription: StoredSubscription }> {
    const asked = event.sessions && new Set(event.sessions);
    for (let after = event.cursor ?? undefined; !this.#closed; ) {
      const range = { table: SUBSCRIPTIONS, owner: event.source, until: event.at + 1, limit: PAGE };
      const rows = await this.#store.ask("rowsInOrder", { ...range, ...(after !== undefined && { after }) });
      for (const row of rows) {
        if (asked?.has(row.session ?? "") === false) continue;
        const subscription = decode<StoredSubscription>(row.value);
        if (wantsEvent(subscription, event.payload)) yield { row, subscription };
      }
      if (rows.length < PAGE) return;
      after = rows.at(-1);
    }
  }

  /** Tells every session that wants the event and has not had it; says how many had it in all. */
  async #fanOut(name: string, version: number, from: Occurrence): Promise<number> {
    let event = from;
    let written = version;
    for await (const { row, subscription } of this.#wanting(from)) {
      if (this.#closed) return event.matched;
      const { session = "", table, key, order } = row;
      const cursor = { table, key, session, ...(order !== undefined && { order }) };
      const next: Occurrence = { ...event, matched: event.matched + 1, cursor };
      const taken = changeOf(name, written, next, { at: event.at, owner: OPEN });
      const text = inputOfEvent(subscription, event.payload);
      if (await this.#tell(session, { trigger: event.source, name, nth: next.matched, text, taken })) {
        event = next;
        written++;
      }
    }
    if (this.#closed) return event.matched;
    const kept = !name.startsWith(".");
    const change = kept
      ? changeOf(name, written, event, { at: event.at, owner: DONE })
      : { table: OCCURRENCES, key: name, value: null };
    await this.#store.ask("changeRows", { changes: [change] });
    return event.matched;
  }

  /** False: this session does not take the event, and is passed over. */
  async #tell(sessionId: string, { trigger, name, nth, text, taken }: Told): Promise<boolean> {
    const source = `trigger:${name}`;
    for (let attempt = 1; ; attempt++) {
      try {
        const told = { sessionId, source, nth, text, items: undefined, replaces: false, rows: { taken } };
        await this.#runtime.ask("deliverInput", told);
        return true;
      } catch (thrown) {
        const error = asTroupeError(thrown, "turn_failed");
        if (ENDING.includes(error.code)) throw error;
        // It was told before a crash, or an answer was lost on its way: the cursor says so.
        if (isConflict(error)) return true;
        if (!FINAL.includes(error.code) && attempt < ATTEMPTS) {
          await sleep(this.#clock, PAUSE_MS * 2 ** (attempt - 1));
          continue;
        }
        this.#runtime.events?.emit({ type: "trigger_failed", trigger, session: sessionId, error: eventError(error) });
        return false;
      }
    }
  }

  async #forgetOld(): Promise<void> {
    const until = this.#clock.wallNow() - REMEMBERED_MS;
    const rows = await this.#store.ask("rowsInOrder", { table: OCCURRENCES, owner: DONE, until, limit: 16 });
    if (rows.length === 0) return;
    await this.#store.ask("changeRows", { changes: rows.map(({ table, key }) => ({ table, key, value: null })) });
  }
}

function changeOf(key: string, expectedVersion: number, event: Occurrence, order: RowOrder): RowChange {
  return { table: OCCURRENCES, key, value: encode(event), expectedVersion, order };
}

function isConflict(error: unknown): boolean {
  return error instanceof TroupeError && error.code === "row_conflict";
}

function asJson(value: StoredSubscription): Json {
  return value as unknown as Json;
}
