/** Older ones are forgotten. */
const MOST_LEFT = 1_000;

/**
 * Sessions that have called a group's plugins and are parked or closed by now. Whether the plugins fail many sessions, and
 * must be given up for all, is asked of these too: a host that parks its sessions has few in memory, most of them those
 * that offend.
 */
export class LeftSessions {
  readonly #ids = new Set<string>();

  add(sessionId: string): void {
    this.#ids.delete(sessionId);
    this.#ids.add(sessionId);
    if (this.#ids.size <= MOST_LEFT) return;
    const [oldest] = this.#ids;
    this.#ids.delete(oldest as string);
  }

  /** These and the sessions that are here, each once. */
  and(here: readonly string[]): readonly string[] {
    return [...new Set([...this.#ids, ...here])];
  }
}
