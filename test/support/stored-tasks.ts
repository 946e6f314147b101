import { pluginUnknown, type RowChange, type RowName, type TaskRecord } from "../../src/kernel/index.js";
import type { Runtime } from "../../src/runtime/places/index.js";
import { Tasks, type TasksRuntime } from "../../src/runtime/tasks/index.js";
import type { ArgumentOf } from "../../src/session/index.js";
import { type BackendAtOnce, openMemory, TASKS } from "../../src/store/index.js";
import type { OrderRange, RowRange } from "../../src/store/records/index.js";
import type { TroupeEvent } from "../../src/trace/index.js";
import { ManualClock } from "./manual-clock.js";

/** Tasks over a store in memory, and sessions that note what they are told. */
export function storedTasks({
  clock = new ManualClock(),
  backend = openMemory({ clock }),
  jobsOf = (pluginId) => {
    throw pluginUnknown(pluginId);
  },
}: {
  readonly clock?: ManualClock;
  readonly backend?: BackendAtOnce;
  readonly jobsOf?: TasksRuntime["crew"]["jobsOf"];
} = {}) {
  const told: { readonly session: string; readonly text: string; readonly steers: boolean }[] = [];
  const events: TroupeEvent[] = [];
  let onDeliver = async (write: () => void): Promise<void> => write();
  let onChange = async (): Promise<void> => {};
  const change = (changes: readonly RowChange[]) => {
    const [result] = backend.write([{ kind: "rows", changes }]);
    if (result !== undefined && "error" in result) throw result.error;
    return result;
  };
  const store: Record<string, (argument: never) => unknown> = {
    row: (name: RowName) => backend.row(name),
    rows: (range: RowRange) => backend.rows(range),
    rowsInOrder: (range: OrderRange) => backend.rowsInOrder(range),
    changeRows: async ({ changes }: { changes: readonly RowChange[] }) => {
      await onChange();
      return change(changes);
    },
  };
  const kept = {
    ask: (async (method: string, argument: never) => store[method]?.(argument)) as Runtime["store"]["ask"],
  };
  const runtime: TasksRuntime & { readonly store: typeof kept } = {
    options: { clock },
    store: kept,
    events: { emit: (event) => void events.push(event as TroupeEvent) } as Runtime["events"],
    onLeft: [],
    crew: {
      store: kept,
      jobsOf,
    },
    async ask(_, { sessionId, rows, text, steers = false }: ArgumentOf<"deliverInput">) {
      await onDeliver(() => {
        change([rows.taken]);
        told.push({ session: sessionId, text, steers });
      });
      return "taken";
    },
  };
  const tasks = new Tasks(runtime);
  return {
    tasks,
    runtime,
    clock,
    backend,
    told,
    events,
    /** What closing a session, or deleting it, does. */
    leave: async (sessionId: string) => {
      for (const end of runtime.onLeft) await end(sessionId);
    },
    rows: (sessionId: string) => backend.rows({ table: TASKS, session: sessionId, limit: 1_000 }),
    onDeliver: (then: typeof onDeliver) => {
      onDeliver = then;
    },
    onChange: (then: typeof onChange) => {
      onChange = then;
    },
  };
}

/** What a test looks at of records. */
export function statesOf(records: readonly TaskRecord[]): unknown {
  return records.map(({ id, state }) => [id, state]);
}
