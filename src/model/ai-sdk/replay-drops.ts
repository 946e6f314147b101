import type { Message, Part, ReplayDrop } from "../../kernel/index.js";

/**
 * What of a conversation one route cannot be given back, because another minted it: signatures and encrypted reasoning
 * would be refused, or worse, believed. Counted by the route that minted it, so that it stays small in a long history.
 */
export class ReplayDrops {
  readonly #route: string;
  #counts: Map<string, { messages: number; parts: number }> | undefined;

  constructor(route: string) {
    this.#route = route;
  }

  get any(): boolean {
    return this.#counts !== undefined;
  }

  /** May everything in this answer go back? One that nobody stamped may; of a foreign one, what is lost is counted. */
  isNative({ route, parts }: Message): boolean {
    if (route === undefined || route === this.#route) return true;
    const lost = parts.filter(isReplay).length;
    if (lost > 0) this.#count(route, lost);
    return false;
  }

  list(): readonly ReplayDrop[] {
    return [...(this.#counts ?? [])].map(([route, counts]) => ({ route, ...counts }));
  }

  #count(route: string, parts: number): void {
    this.#counts ??= new Map();
    const before = this.#counts.get(route) ?? { messages: 0, parts: 0 };
    this.#counts.set(route, { messages: before.messages + 1, parts: before.parts + parts });
  }
}

/** Is there something in this part for its own provider only? */
function isReplay(part: Part): boolean {
  return part.type === "reasoning" || (part.type === "tool_call" && part.metadata !== undefined);
}
