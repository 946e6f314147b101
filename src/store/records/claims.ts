import { sessionMoved } from "../../kernel/index.js";

/** Who claims a session, and over whom. */
export interface Claim {
  /** Tells owners apart; a thread or process that was started anew is another owner. */
  readonly owner: string;
  /**
   * `always`: whoever has it loses it; for what a host asks for. `free`: only when nobody alive has it; for what goes on
   * by itself. Refused with `session_moved`.
   */
  readonly take: "always" | "free";
}

/** Openings of a folder share the numbers of an epoch with the claims of each. */
const CLAIMS_PER_OPENING = 2 ** 32;

/**
 * Who owns which session of a store that one process has. Only memory knows: the store belongs to the process, so a claim
 * of an earlier one is nobody's, and the opening's own number keeps its epochs from coming again.
 */
export class Claims {
  readonly #claims = new Map<string, { readonly epoch: number; readonly owner: string }>();
  readonly #gone = new Set<string>();
  #last: number;

  /** `opening`: larger than at every opening before. */
  constructor(opening: number) {
    this.#last = opening * CLAIMS_PER_OPENING;
  }

  epoch(sessionId: string): number | undefined {
    return this.#claims.get(sessionId)?.epoch;
  }

  /** Nobody else writes to the session from now on. */
  claim(sessionId: string, { owner, take }: Claim): number {
    if (take === "free" && this.isOwned(sessionId) && this.#claims.get(sessionId)?.owner !== owner)
      throw sessionMoved(sessionId);
    const epoch = ++this.#last;
    this.#claims.set(sessionId, { epoch, owner });
    return epoch;
  }

  /** The session is nobody's, unless somebody else has it by now. */
  release(sessionId: string, epoch: number): void {
    if (this.epoch(sessionId) === epoch) this.#claims.delete(sessionId);
  }

  /** Does somebody alive have it? */
  isOwned(sessionId: string): boolean {
    const claim = this.#claims.get(sessionId);
    return claim !== undefined && !this.#gone.has(claim.owner);
  }

  /** An owner is no more. What it sent before is still its own to write, until somebody else claims the session. */
  leave(owner: string): void {
    this.#gone.add(owner);
  }

  clear(): void {
    this.#claims.clear();
  }
}
