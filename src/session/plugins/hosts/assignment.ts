import { TroupeError } from "../../../kernel/index.js";
import type { GroupSetup } from "../../calls/index.js";

/** Offences after which a session's plugins run on the group's quarantine host. */
const QUARANTINED_AT = 2;
/**
 * Offences after which its calls are refused for a while, without being made: it has had one trial in quarantine. Each
 * costs a core for as long as the thread is held, which neighbours feel where cores are few.
 */
const REFUSED_AT = 3;
const REFUSED_MS = 30_000;
/** After so long without an offence a session is like any other again. */
const GOOD_MS = 30_000;
/** The same for one that was only near: its calls that were under way have been made alone by then. */
const DOUBT_MS = 2_000;
/** Between two calls of a session in quarantine that has just offended. */
const PAUSE_MS = 20;
/** Sessions whose offences are remembered; beyond that the oldest is forgotten. */
const MOST_REMEMBERED = 10_000;

interface Offences {
  count: number;
  last: number;
  quarantined: boolean;
}

/** What an offence made of its session. */
export type OffenceChange = { readonly session: string; readonly offences: number } & (
  | { readonly becomes: "quarantined" }
  | { readonly becomes: "refused"; readonly forMs: number }
);

interface AssignmentParts extends Pick<GroupSetup, "isolation" | "shards"> {
  readonly onChanged?: (change: OffenceChange) => void;
}

/**
 * Which plugin host serves a session's calls to a group of plugins. It is decided here and nowhere else: by the session's
 * hash over the shards the group has, and by what the session has done to its hosts. A session whose call held a thread
 * that died or was blocked is a suspect; the second time it goes to the quarantine host, where it hurts no other.
 */
export class Assignment {
  readonly #isolation: GroupSetup["isolation"];
  readonly #offences = new Map<string, Offences>();
  #shards: number;
  /** Changes whenever an answer of {@link hostOf} may have changed for sessions that never offended. */
  version = 0;

  readonly #onChanged: ((change: OffenceChange) => void) | undefined;

  constructor({ isolation, shards, onChanged }: AssignmentParts) {
    this.#isolation = isolation;
    this.#shards = shards;
    this.#onChanged = onChanged;
  }

  spread(shards: number): void {
    if (shards === this.#shards) return;
    this.#shards = shards;
    this.version++;
  }

  /** Must this session be looked at with each of its calls? */
  isSuspect(sessionId: string): boolean {
    return this.#offences.size > 0 && this.#offences.has(sessionId);
  }

  /** Has it certainly been this session's call that held a thread that is gone? */
  hasOffended(sessionId: string): boolean {
    return (this.#offences.get(sessionId)?.count ?? 0) > 0;
  }

  get offenders(): number {
    let certain = 0;
    for (const { count } of this.#offences.values()) if (count > 0) certain++;
    return certain;
  }

  hostOf(sessionId: string, now: number): string {
    if (this.#isolation === "session") return `session ${sessionId}`;
    if (this.#remembered(sessionId, now)?.quarantined === true) return QUARANTINE;
    return `${SHARD}${this.#shards === 1 ? 0 : hash(sessionId) % this.#shards}`;
  }

  /** Was this the host of sessions that are all at others now, because the group has fewer shards? */
  isSurplus(key: string): boolean {
    return isSharedByWorkers(key) && Number(key.slice(SHARD.length)) >= this.#shards;
  }

  /** How long the session's next call waits, or why it is refused. */
  admit(sessionId: string, now: number): number | TroupeError {
    const offences = this.#remembered(sessionId, now);
    if (offences === undefined || offences.count < QUARANTINED_AT) return 0;
    const since = now - offences.last;
    if (offences.count >= REFUSED_AT && since < REFUSED_MS) {
      const waitMs = Math.ceil(REFUSED_MS - since);
      return new TroupeError(
        "session_quarantined",
        `Session ${sessionId} has ended or blocked the thread of this plugin ${offences.count} times; its calls are refused for another ${waitMs} ms. Mend what the plugin does for this session, or try again then.`,
        { retryable: true, details: { sessionId, offences: offences.count, waitMs } },
      );
    }
    return Math.max(0, PAUSE_MS - since);
  }

  /**
   * The session's call held a thread that is gone. When it is not certain that it was this session's call, the session is
   * only put where it is alone: whoever does it again there is the one.
   */
  offend(sessionId: string, { now, certain }: { readonly now: number; readonly certain: boolean }): void {
    const offences = this.#remembered(sessionId, now) ?? { count: 0, last: now, quarantined: false };
    const { quarantined: before } = offences;
    if (certain) offences.count++;
    const isRefused = certain && offences.count >= REFUSED_AT;
    // A session that was refused and offends at its next chance is refused again at once.
    offences.count = Math.min(offences.count, REFUSED_AT);
    offences.last = now;
    offences.quarantined ||= !certain || offences.count >= QUARANTINED_AT;
    this.#offences.delete(sessionId);
    this.#offences.set(sessionId, offences);
    if (this.#offences.size > MOST_REMEMBERED) {
      const [oldest] = this.#offences.keys();
      this.#offences.delete(oldest as string);
    }
    const { count, quarantined } = offences;
    if (isRefused) this.#onChanged?.({ session: sessionId, becomes: "refused", offences: count, forMs: REFUSED_MS });
    else if (!before && quarantined) this.#onChanged?.({ session: sessionId, becomes: "quarantined", offences: count });
  }

  #remembered(sessionId: string, now: number): Offences | undefined {
    const offences = this.#offences.get(sessionId);
    if (offences === undefined) return undefined;
    const untilGood = offences.count === 0 ? DOUBT_MS : GOOD_MS + (offences.count >= REFUSED_AT ? REFUSED_MS : 0);
    if (now - offences.last < untilGood) return offences;
    this.#offences.delete(sessionId);
    return undefined;
  }
}

const SHARD = "shard ";

/** Each session worker has a quarantine host of its own, so that it knows of every call that is made there. */
export const QUARANTINE = "quarantine";

/** Do sessions of other session workers use this host as well? */
export function isSharedByWorkers(key: string): boolean {
  return key.startsWith(SHARD);
}

/** FNV-1a: spreads ids that differ in their last character only. */
function hash(text: string): number {
  let value = 0x811c9dc5;
  for (let at = 0; at < text.length; at++) value = Math.imul(value ^ text.charCodeAt(at), 0x01000193);
  return (value ^ (value >>> 15)) >>> 0;
}
