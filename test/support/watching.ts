import type { Session, Troupe } from "troupe";
import type { MonitorRequest, MonitorSnapshot, MonitorStatus, MonitorUpdate, MonitorUpdateBatch } from "troupe/plugin";
import { until } from "./runtime.js";

interface Answer {
  readonly value?: unknown;
  readonly error?: string;
  readonly message?: string;
  readonly details?: Readonly<Record<string, unknown>>;
}

/** A session and its monitors, as a plugin made of `watches.mjs` has them. */
export class Watching {
  readonly session: Session;
  readonly #command: string;

  constructor(session: Session, plugin = "test.watches") {
    this.session = session;
    this.#command = `${plugin}.act`;
  }

  static async in(troupe: Troupe, id: string, plugin?: string): Promise<Watching> {
    return new Watching(await troupe.session(id), plugin);
  }

  async ask(...calls: readonly (readonly [method: string, ...args: readonly unknown[]])[]): Promise<Answer[]> {
    return (await this.session.command(this.#command, { calls } as never)).output as unknown as Answer[];
  }

  async start(request: MonitorRequest): Promise<MonitorSnapshot> {
    return this.#given(await this.ask(["startMonitor", request])) as MonitorSnapshot;
  }

  async stop(id: string): Promise<MonitorSnapshot> {
    return this.#given(await this.ask(["stopMonitor", id])) as MonitorSnapshot;
  }

  async status(id: string): Promise<MonitorStatus | undefined> {
    const { monitors } = this.#given(await this.ask(["monitorSnapshot"])) as MonitorSnapshot;
    return monitors.find((each) => each.id === id);
  }

  async take(): Promise<readonly MonitorUpdate[]> {
    return (this.#given(await this.ask(["takeMonitorUpdates"])) as MonitorUpdateBatch).updates;
  }

  /** All updates until one of them fits. */
  async takeUntil(what: string, fits: (update: MonitorUpdate) => boolean): Promise<readonly MonitorUpdate[]> {
    const all: MonitorUpdate[] = [];
    await until(what, async () => {
      all.push(...(await this.take()));
      return all.some(fits);
    });
    return all;
  }

  #given([answer]: readonly Answer[]): unknown {
    if (answer?.error !== undefined) throw new Error(`${answer.error}: ${answer.message}`);
    return answer?.value;
  }
}

/** The lines of updates, in their order. */
export function linesOf(updates: readonly MonitorUpdate[]): string[] {
  return updates.flatMap(({ text }) => (text === "" ? [] : text.split("\n")));
}
