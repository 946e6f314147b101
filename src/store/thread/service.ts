import type { MessagePort } from "node:worker_threads";
import type { Clock } from "../../async/index.js";
import { MONITOR_ORDER, MONITORS, type RowName, type RowsWrite, TASK_ORDER, TroupeError } from "../../kernel/index.js";
import { moving } from "../../wire/index.js";
import { type MigrationProgress, openLmdb } from "../lmdb/index.js";
import { openMemory } from "../memory/index.js";
import type { ListRequest, OrderRange, PendingRequest, RowRange, StoreOptions } from "../records/index.js";
import { type ExportRequest, type ImportRequest, type PrunePolicy, type Watched, workOf } from "../upkeep/index.js";
import { StoreServer } from "./serve.js";
import { OCCURRENCES, SCHEDULES, TASKS } from "./store-calls.js";

/** Work that was left in the store. Told with its opening, so that a runtime without any asks for nothing. */
export interface LeftWork {
  /** When the first schedule is due; null: there is none. */
  readonly firstWake: number | null;
  /** Events are on their way to sessions. */
  readonly occurrences: boolean;
  /** Tasks go on, or their ends are to be told. */
  readonly tasks: boolean;
  /** Some have ended, and are remembered. */
  readonly endedTasks: boolean;
  /** When the first task that sleeps wakes; null: none sleeps. */
  readonly firstTaskWake: number | null;
  /** Something is to be watched for sessions. */
  readonly monitors: boolean;
}

export type StoreService = ReturnType<typeof storeService>;

/**
 * What the store worker serves to the main thread.
 *
 * @example
 * serve(parentPort, storeService({ clock, onClosed: () => parentPort.close() })); // in the store worker
 * const store = new Caller<StoreService>(worker, { name: "store worker", deadlineMs: 10_000 });
 * await store.to.open({ path: "./data" });
 * const { port1, port2 } = new MessageChannel();
 * await store.to.attach({ port: port1 }, { transfer: [port1] }); // port2 goes to a session worker
 */
export function storeService({ clock, onClosed }: { readonly clock: Clock; readonly onClosed: () => void }) {
  let server: StoreServer | undefined;
  const opened = (): StoreServer => {
    if (server === undefined) throw new TroupeError("store_not_open", "Open the store before using it.");
    return server;
  };
  return {
    /** Only the store worker may open a path: it is the one writer. */
    async open({ progress, ...options }: Watched<StoreOptions>): Promise<LeftWork> {
      if (server !== undefined) throw new TroupeError("store_already_open", "This store worker has a store already.");
      const onMigration = (done: MigrationProgress) => progress?.postMessage({ step: "migrate", ...done });
      const given = { ...options, clock, onMigration };
      server = new StoreServer("path" in options ? openLmdb(options.path, given) : openMemory(given), clock);
      const [schedule] = await server.rowsInOrder({ table: SCHEDULES, limit: 1 });
      const [occurrence] = await server.rowsInOrder({ table: OCCURRENCES, owner: "open", limit: 1 });
      const [task] = await server.rowsInOrder({ table: TASKS, owner: TASK_ORDER.open, limit: 1 });
      const [ended] = await server.rowsInOrder({ table: TASKS, owner: TASK_ORDER.ended, limit: 1 });
      const [sleeper] = await server.rowsInOrder({ table: TASKS, owner: TASK_ORDER.asleep, limit: 1 });
      const [monitor] = await server.rowsInOrder({ table: MONITORS, owner: MONITOR_ORDER.on, limit: 1 });
      return {
        firstWake: schedule?.order?.at ?? null,
        occurrences: occurrence !== undefined,
        tasks: task !== undefined,
        endedTasks: ended !== undefined,
        firstTaskWake: sleeper?.order?.at ?? null,
        monitors: monitor !== undefined,
      };
    },
    /** Serves one more session worker. */
    attach: ({ port, replaces }: { readonly port: MessagePort; readonly replaces?: string | undefined }) =>
      opened().attach(port, replaces),
    stats: () => opened().stats(),
    /** Sessions whose last turn was begun and not finished, and which nobody alive has. */
    unfinished: () => opened().unfinished(),
    /** False when there was no such session. Its id is not used again. */
    deleteSession: ({ sessionId }: { readonly sessionId: string }) => opened().deleteSession(sessionId),
    row: (name: RowName) => opened().row(name),
    rows: (range: RowRange) => opened().rows(range),
    rowsInOrder: (range: OrderRange) => opened().rowsInOrder(range),
    changeRows: (changes: Omit<RowsWrite, "kind">) => opened().changeRows(changes),
    list: (request: ListRequest) => opened().list(request),
    has: ({ sessionId }: { readonly sessionId: string }) => opened().has(sessionId),
    /** Calls that wait for somebody outside. */
    waiting: (request: PendingRequest) => opened().waiting(request),
    /** The sessions that one was forked from or made by, the nearest first. */
    ancestors: (asked: { readonly sessionId: string; readonly depth: number }) => opened().ancestors(asked),
    /** Those that were forked from a session, or from one of these: so many at the most. */
    descendants: (asked: { readonly sessionId: string; readonly limit: number }) => opened().descendants(asked),
    /** Was a session forked from another one, or from one that was? */
    isDescendant: (asked: { readonly sessionId: string; readonly of: string }) => opened().isDescendant(asked),
    prune: ({ progress, ...policy }: Watched<PrunePolicy>, signal: AbortSignal) =>
      opened().maintenance.prune(policy, workOf(progress, signal)),
    /** The bytes, unless they were to go into a file. */
    async exportSession(
      { progress, ...request }: Watched<ExportRequest>,
      signal: AbortSignal,
    ): Promise<{ readonly bytes?: Uint8Array<ArrayBuffer> }> {
      const bytes = await opened().maintenance.exportSession(request, workOf(progress, signal));
      return bytes === undefined ? {} : moving({ bytes }, [bytes.buffer]);
    },
    importSession: ({ progress, ...request }: Watched<ImportRequest>, signal: AbortSignal) =>
      opened().maintenance.importSession(request, workOf(progress, signal)),
    /** A copy of a store on disk, as it is at one moment. */
    backup: (request: { readonly folder: string }, signal: AbortSignal) =>
      opened().maintenance.backup(request, { signal }),
    /** For tests: the thread dies of an error, between two writes. */
    crash() {
      // On a turn of its own: between two writes, and not as the failure of this call.
      clock.soon(() => {
        throw new Error("The store's thread was told to crash.");
      });
    },
    /** Writes what is waiting, answers it, closes everything; the thread then ends by itself. */
    async close() {
      await server?.close();
      onClosed();
    },
  };
}
