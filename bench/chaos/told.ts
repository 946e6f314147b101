import type { Logger, TroupeEvent, TroupeStats } from "troupe";

type Of<T extends TroupeEvent["type"]> = Extract<TroupeEvent, { type: T }>;

/** What a runtime told of itself: as events, and the same as lines of a log. */
export class ToldEvents {
  readonly #events: TroupeEvent[] = [];
  readonly #lines: string[] = [];

  readonly onEvent = (event: TroupeEvent) => void this.#events.push(event);
  readonly log: Logger = { debug: this.#keeps(), info: this.#keeps(), warn: this.#keeps(), error: this.#keeps() };

  #keeps() {
    return (fields: Readonly<Record<string, unknown>>, message: string) =>
      void this.#lines.push(`${JSON.stringify(fields)} ${message}`);
  }

  of<T extends TroupeEvent["type"]>(type: T): Of<T>[] {
    return this.#events.filter((event): event is Of<T> => event.type === type);
  }

  /** Those of one session. */
  about<T extends TroupeEvent["type"]>(type: T, id: string): Of<T>[] {
    return this.of(type).filter(({ session }) => session === id);
  }

  /** How often each type was told. */
  get counts(): Readonly<Record<string, number>> {
    const counts: Record<string, number> = {};
    for (const { type, count } of this.#events) counts[type] = (counts[type] ?? 0) + count;
    return counts;
  }

  /** The texts that are in an event or a line, and must not be. */
  found(texts: readonly string[]): string[] {
    const all = [...this.#events.map((event) => JSON.stringify(event)), ...this.#lines].join("\n");
    return texts.filter((text) => all.includes(text)).map((text) => `Events or logs have "${text}".`);
  }

  /** Each restart once, and none left out: told as the first, the second and so on, as far as the statistics have come. */
  restarts({ plugins, workers }: Pick<TroupeStats, "plugins" | "workers">): string[] {
    const ofPlugins = plugins
      .filter(({ tier }) => tier === "worker")
      .map(({ id, restarts }) => {
        const events = this.of("plugin_restarted").filter(({ plugin }) => plugin.split(", ").includes(id));
        return { who: id, restarts, told: events.map((event) => event.restarts) };
      });
    const ofWorkers = workers.map(({ index, restarts }) => {
      const who = `Session worker ${index}`;
      const events = this.of("session_worker_replaced").filter(({ thread }) => thread === who);
      return { who, restarts, told: events.map((event) => event.restarts) };
    });
    const lost = this.of("session_worker_lost").length;
    const replaced = this.of("session_worker_replaced").length;
    return [
      ...[...ofPlugins, ...ofWorkers]
        .filter(({ restarts, told }) => told.length < restarts || told.some((restart, n) => restart !== n + 1))
        .map(({ who, restarts, told }) => `${who} was restarted ${restarts} times, and told as ${told.join(", ")}.`),
      ...(lost === replaced ? [] : [`${lost} session workers were told as lost, and ${replaced} as replaced.`]),
    ];
  }

  /** Each taking up of a turn once. A turn that was refused leaves its id to the session's next one. */
  resumes(refusalsOf: (session: string) => number): string[] {
    const seen = new Set<string>();
    const again = new Map<string, number>();
    for (const { session, turn, times } of this.of("turn_resumed")) {
      const key = `${session} ${turn} ${times}`;
      if (seen.has(key)) again.set(session, (again.get(session) ?? 0) + 1);
      seen.add(key);
    }
    return [...again]
      .filter(([session, count]) => count > refusalsOf(session))
      .map(([session, count]) => `${session}: turns were told ${count} times too often as taken up.`);
  }

  /** A breaker that is told as open is not told so again before it closed, or the worker that knew of it is gone. */
  breakers(): string[] {
    const open = new Set<string>();
    const wrong: string[] = [];
    for (const event of this.#events) {
      if (event.type === "session_worker_lost") {
        for (const key of open) if (key.startsWith(`${event.thread}:`)) open.delete(key);
      } else if (event.type === "breaker_opened" || event.type === "breaker_closed") {
        const key = `${event.thread}: ${event.plugin} ${event.hook}`;
        const opens = event.type === "breaker_opened";
        if (opens === open.has(key)) wrong.push(`${key}: ${event.type} was told twice in a row.`);
        if (opens) open.add(key);
        else open.delete(key);
      }
    }
    return wrong;
  }
}
