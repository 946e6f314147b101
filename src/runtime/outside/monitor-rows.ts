import {
  MONITOR_ORDER,
  MONITORS,
  monitorKey,
  monitorOrder,
  type RowChange,
  type StoredMonitor,
  TroupeError,
} from "../../kernel/index.js";
import { decode, encode } from "../../wire/index.js";
import type { Runtime } from "../places/index.js";

/** A monitor as the store has it. */
export interface MonitorRow {
  readonly sessionId: string;
  readonly stored: StoredMonitor;
  readonly version: number;
}

export interface StoreOf {
  readonly store: Pick<Runtime["store"], "ask">;
}

const PAGE = 256;
/** More than a session can have. */
const MOST = 1_000;

/** The monitors in the store. Whoever changes one reads it first: of two at once, one reads it again. */
export class MonitorRows {
  readonly #runtime: StoreOf;

  constructor(runtime: StoreOf) {
    this.#runtime = runtime;
  }

  one(sessionId: string, owner: string, id: string): Promise<MonitorRow | undefined> {
    return this.at(sessionId, monitorKey(owner, id));
  }

  async at(sessionId: string, key: string): Promise<MonitorRow | undefined> {
    const row = await this.#store.ask("row", { table: MONITORS, session: sessionId, key });
    return row && { sessionId, stored: decode<StoredMonitor>(row.value), version: row.version };
  }

  /** Those of a plugin in a session. */
  async of(sessionId: string, owner: string): Promise<readonly MonitorRow[]> {
    const rows = await this.#store.ask("rows", { table: MONITORS, session: sessionId, limit: MOST });
    return rows
      .map(({ value, version }) => ({ sessionId, stored: decode<StoredMonitor>(value), version }))
      .filter(({ stored }) => stored.owner === owner);
  }

  /** Those that go on, and those with something to deliver. */
  async *open(): AsyncGenerator<MonitorRow> {
    for (let after: Pick<RowChange, "table" | "key" | "session" | "order"> | undefined; ; ) {
      const range = { table: MONITORS, owner: MONITOR_ORDER.on, limit: PAGE, ...(after !== undefined && { after }) };
      const rows = await this.#store.ask("rowsInOrder", range);
      for (const { session = "", value, version } of rows)
        yield { sessionId: session, stored: decode<StoredMonitor>(value), version };
      after = rows.at(-1);
      if (rows.length < PAGE) return;
    }
  }

  /** As the plan makes it of what is there; undefined when nothing is. */
  async change(
    { sessionId, owner, id }: { readonly sessionId: string; readonly owner: string; readonly id: string },
    plan: (stored: StoredMonitor) => StoredMonitor,
  ): Promise<StoredMonitor | undefined> {
    for (;;) {
      const row = await this.one(sessionId, owner, id);
      if (row === undefined) return undefined;
      const next = plan(row.stored);
      if (next === row.stored || (await this.write([changeOf(row, next)]))) return next;
    }
  }

  /** False: somebody else has changed one of them. */
  async write(changes: readonly RowChange[]): Promise<boolean> {
    try {
      await this.#store.ask("changeRows", { changes });
      return true;
    } catch (error) {
      if (isConflict(error)) return false;
      throw error;
    }
  }

  /** In the place of whatever is there. */
  async put(sessionId: string, stored: StoredMonitor): Promise<void> {
    const { expectedVersion: _, ...change } = changeOf({ sessionId, stored, version: 0 }, stored);
    await this.#store.ask("changeRows", { changes: [change] });
  }

  async remove(sessionId: string, monitors: readonly Pick<StoredMonitor, "owner" | "id">[]): Promise<void> {
    const changes = monitors.map(({ owner, id }) => ({
      table: MONITORS,
      session: sessionId,
      key: monitorKey(owner, id),
      value: null,
    }));
    await this.#store.ask("changeRows", { changes });
  }

  get #store() {
    return this.#runtime.store;
  }
}

/** Over this row and no later one. */
export function changeOf({ sessionId, version }: MonitorRow, stored: StoredMonitor): RowChange {
  return {
    table: MONITORS,
    session: sessionId,
    key: monitorKey(stored.owner, stored.id),
    value: encode(stored),
    expectedVersion: version,
    order: monitorOrder(stored),
  };
}

export function isConflict(error: unknown): boolean {
  return error instanceof TroupeError && error.code === "row_conflict";
}
