import type { Clock } from "../../async/index.js";
import { type Activity, cursorInvalid, type TurnResult } from "../../kernel/index.js";
import { joinEvents, type ObservationGap, type Observed, type ObservedEvent } from "../calls/index.js";

/** Events kept for readers that come back; neighbouring deltas count once. */
const KEPT = 2_048;
/** Characters of deltas, and of what tools say, among them: what a model says in one answer is less. */
const KEPT_CHARACTERS = 2_000_000;
/** New events after which told deltas are worth joining. */
const WORTH_JOINING = KEPT / 2;
/** Events that wait to be put among the others while nobody reads: most turns are over before, and are given up unread. */
const MOST_UNREAD = 64;

/** An event, or neighbouring deltas as one. */
interface Entry {
  /** The places of its first and its last event. */
  readonly first: number;
  readonly position: number;
  readonly event: ObservedEvent;
  /** Of deltas that were told one by one: the place of each but the last, and how much of the text it ended. */
  readonly cuts?: number[];
}

/** Where a reader begins: behind its cursor, with what happens now, or with the beginning of the running turn. */
export type ObserveFrom = { readonly cursor: string } | "now" | "turn";

/** The turn that runs, or ran last, as its activities say. */
interface LoggedTurn {
  readonly turnId: string;
  readonly since: number;
  readonly start: number;
  /** Where its end was told; undefined while it runs. */
  end: number | undefined;
}

/**
 * What happens in a session, for whoever watches it: bounded, replayable by cursor, never waiting for a reader. A cursor
 * is opaque; it binds the session, this life of the log, and a place in it.
 */
export class SessionLog {
  readonly #sessionId: string;
  readonly #clock: Pick<Clock, "randomBytes">;
  /** Another one for every life: places of different lives cannot be mixed up. Made when somebody asks for a cursor. */
  #incarnation: string | undefined;
  #entries: Entry[] = [];
  /** The last events, when nobody has read them: see {@link MOST_UNREAD}. */
  #unread: ObservedEvent[] = [];
  #characters = 0;
  #sinceJoined = 0;
  #next = 1;
  /** The last place somebody has been told of: from there on a reader may come back. */
  #told = 0;
  #turn: LoggedTurn | undefined;
  readonly #readers = new Set<(observed: Observed) => void>();

  constructor(sessionId: string, clock: Pick<Clock, "randomBytes">) {
    this.#sessionId = sessionId;
    this.#clock = clock;
  }

  /** The place behind everything that has happened. */
  get cursor(): string {
    this.#read();
    this.#told = this.#next - 1;
    return this.#cursorAt(this.#next - 1);
  }

  /** The turn that runs; undefined between turns. */
  get running(): Pick<LoggedTurn, "turnId" | "since"> | undefined {
    return this.#turn?.end === undefined ? this.#turn : undefined;
  }

  /** Something happened in the running turn. */
  tell(activity: Activity): void {
    if (activity.type === "turn_started") {
      const { turnId, at: since } = activity;
      this.#turn = { turnId, since, start: this.#next, end: undefined };
    }
    const { turnId = "" } = this.#turn ?? {};
    const finished = activity.type === "turn_finished" ? activity.result : undefined;
    if (finished !== undefined && this.#turn !== undefined) this.#turn.end = this.#next;
    this.push({ type: "activity", turnId, activity });
    if (finished === undefined) return;
    const { revision, turnIndex } = finished;
    this.push({ type: "committed", revision, turnIndex });
  }

  /** The running turn is over without being stored; it is told of when it was refused. */
  left(refused: Pick<Extract<ObservedEvent, { type: "refused" }>, "code" | "message"> | undefined): void {
    const turn = this.#turn;
    if (turn === undefined || turn.end !== undefined) return;
    turn.end = this.#next;
    if (refused !== undefined) this.push({ type: "refused", turnId: turn.turnId, ...refused });
  }

  push(event: ObservedEvent): void {
    const position = this.#next++;
    this.#unread.push(event);
    if (this.#readers.size === 0 && this.#unread.length < MOST_UNREAD) return;
    this.#read();
    const observed: Observed = { cursor: this.#cursorAt(position), event };
    this.#told = position;
    for (const reader of this.#readers) reader(observed);
  }

  /**
   * Gives a reader what came since the place it begins at, then everything that happens, until it is taken off. A cursor
   * of another session, or none at all, is refused with `cursor_invalid`.
   */
  subscribe(from: ObserveFrom, reader: (observed: Observed) => void): () => void {
    this.#read();
    const start = this.#placeOf(from);
    const oldest = this.#entries[0]?.first ?? this.#next;
    if (start === undefined) reader(this.#gap("unavailable", oldest - 1));
    else if (start + 1 < oldest) reader(this.#gap("trimmed", oldest - 1));
    const behind = start ?? oldest - 1;
    for (const entry of this.#entries)
      if (entry.position > behind) reader({ cursor: this.#cursorAt(entry.position), event: restOf(entry, behind) });
    this.#told = this.#next - 1;
    this.#readers.add(reader);
    return () => this.#readers.delete(reader);
  }

  /** Gives up what is not of the running turn, or but for its end of the one that ran last. */
  trim(): void {
    const { start = this.#next, end = start } = this.#turn ?? {};
    const oldest = this.#next - this.#unread.length;
    if (end > oldest) this.#unread = this.#unread.slice(end - oldest);
    if (this.#entries.length === 0) return;
    this.#entries = this.#entries.filter(({ position }) => position >= end);
    this.#characters = this.#entries.reduce((sum, { event }) => sum + charactersOf(event), 0);
  }

  /** What a turn that ended lately came to. */
  resultOf(turnId: string): TurnResult | undefined {
    this.#read();
    for (const { event } of this.#entries.toReversed())
      if (event.type === "activity" && event.activity.type === "turn_finished" && event.turnId === turnId)
        return event.activity.result;
    return undefined;
  }

  /** The text that the running turn has shown, block by block. */
  get shownText(): string {
    this.#read();
    const blocks: string[] = [];
    let block: string | undefined;
    for (const { position, event } of this.#entries) {
      if (position < (this.#turn?.start ?? 0) || event.type !== "activity") continue;
      const { activity } = event;
      if (activity.type === "text_delta") {
        if (activity.blockId === block) blocks.push(`${blocks.pop() ?? ""}${activity.text}`);
        else blocks.push(activity.text);
      }
      // A block's id means something only within its model call.
      if (activity.type === "text_delta") block = activity.blockId;
      else if (activity.type === "model_call_started") block = undefined;
    }
    return blocks.join("\n\n");
  }

  /** Puts what nobody has read among the entries. */
  #read(): void {
    const unread = this.#unread;
    if (unread.length === 0) return;
    this.#unread = [];
    const first = this.#next - unread.length;
    for (const [at, event] of unread.entries()) this.#keep(event, first + at);
  }

  #keep(event: ObservedEvent, position: number): void {
    const last = this.#entries.at(-1);
    // How text was cut means nothing: neighbouring deltas that nobody has seen are one.
    const joined = last !== undefined && last.position > this.#told ? joinEvents(last.event, event) : undefined;
    if (last !== undefined && joined !== undefined) {
      this.#characters += charactersOf(joined) - charactersOf(last.event);
      this.#entries[this.#entries.length - 1] = { ...last, position, event: joined };
    } else {
      this.#characters += charactersOf(event);
      this.#entries.push({ first: position, position, event });
      this.#sinceJoined++;
    }
    if (this.#entries.length > KEPT && this.#sinceJoined > WORTH_JOINING) this.#join();
    while (this.#entries.length > KEPT || (this.#characters > KEPT_CHARACTERS && this.#entries.length > 1))
      this.#characters -= charactersOf((this.#entries.shift() as Entry).event);
  }

  /** Joins the deltas that were told, and keeps where each ended: a reader that saw some of them gets the others. */
  #join(): void {
    this.#sinceJoined = 0;
    const entries: Entry[] = [];
    for (const entry of this.#entries) {
      const last = entries.at(-1);
      const event = last && joinEvents(last.event, entry.event);
      if (last === undefined || event === undefined) {
        entries.push(entry);
        continue;
      }
      const before = charactersOf(last.event);
      // Of what a call says of itself only the later one is left.
      this.#characters += charactersOf(event) - before - charactersOf(entry.event);
      const { cuts = [] } = last;
      cuts.push(last.position, before);
      for (let at = 0; entry.cuts !== undefined && at < entry.cuts.length; at += 2)
        cuts.push(entry.cuts[at] as number, before + (entry.cuts[at + 1] as number));
      entries[entries.length - 1] = { first: last.first, position: entry.position, event, cuts };
    }
    this.#entries = entries;
  }

  /** Undefined when the place is of another life, or has not been yet. */
  #placeOf(from: ObserveFrom): number | undefined {
    if (typeof from === "object") return this.#positionOf(from.cursor);
    const turn = this.#turn;
    // Of a turn that is over, its end: what else it did is stored.
    if (from === "now" || turn === undefined) return this.#next - 1;
    return (turn.end ?? turn.start) - 1;
  }

  #gap(reason: ObservationGap["reason"], position: number): Observed {
    return { cursor: this.#cursorAt(position), event: { type: "gap", reason } };
  }

  #cursorAt(position: number): string {
    this.#incarnation ??= this.#clock.randomBytes(6).toString("base64url");
    return Buffer.from(JSON.stringify([this.#sessionId, this.#incarnation, position])).toString("base64url");
  }

  #positionOf(cursor: string): number | undefined {
    let parsed: unknown;
    try {
      parsed = JSON.parse(Buffer.from(cursor, "base64url").toString());
    } catch {
      parsed = undefined;
    }
    const [sessionId, incarnation, position] = Array.isArray(parsed) ? parsed : [];
    if (
      sessionId !== this.#sessionId ||
      typeof incarnation !== "string" ||
      !Number.isSafeInteger(position) ||
      position < 0
    ) {
      throw cursorInvalid(this.#sessionId);
    }
    return incarnation === this.#incarnation && position < this.#next ? position : undefined;
  }
}

/** What of an entry is behind a place. */
function restOf({ first, event, cuts }: Entry, behind: number): ObservedEvent {
  if (cuts === undefined || behind < first || event.type !== "activity" || !("text" in event.activity)) return event;
  let from = 0;
  for (let at = 0; at < cuts.length && (cuts[at] as number) <= behind; at += 2) from = cuts[at + 1] as number;
  return { ...event, activity: { ...event.activity, text: event.activity.text.slice(from) } };
}

function charactersOf(event: ObservedEvent): number {
  if (event.type !== "activity") return 0;
  const { activity } = event;
  if ("text" in activity) return activity.text.length;
  if (activity.type === "tool_progress") return JSON.stringify(activity.value).length;
  return activity.type === "tool_preliminary" ? JSON.stringify(activity.output).length : 0;
}
