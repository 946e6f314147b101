import type { Clock, Timer } from "../../async/index.js";
import type { Json } from "../../kernel/index.js";
import { contentMadeHere, readAnswer, sealAnswer } from "../../plugin/index.js";
import { plainResult } from "./plain-result.js";

/** What a call says before it answers: how far it is, or what its result is so far. */
export type NoteKind = "progress" | "preliminary";

/** One thing a call said. As JSON text: it crosses threads as one string, and what it says cannot change any more. */
export interface ToolNote {
  readonly kind: NoteKind;
  readonly json: string;
  /** How many of its kind were left out before it. */
  readonly missed: number;
}

/** Where what calls say on a thread goes to, in the name of whatever tells one call from another there. */
export interface NoteSink<About = never> {
  readonly clock: Clock;
  tell(about: About, note: ToolNote): void;
}

/** Takes what calls say, where their turns are. */
export type NoteTaker = (
  call: { readonly sessionId: string; readonly turnId: string; readonly callId: string },
  note: ToolNote,
) => void;

/** What a call may say: this much at once, and so often. */
export const NOTE_LIMITS = { bytes: 16 * 1024, everyMs: 50 } as const;

/**
 * Lets through one text in {@link NOTE_LIMITS.everyMs} milliseconds. Of several that come sooner the latest waits for its
 * time, and those before it are counted.
 */
class NotePace {
  readonly #clock: Clock;
  readonly #tell: (json: string, missed: number) => void;
  #nextAt = Number.NEGATIVE_INFINITY;
  #waiting: string | undefined;
  #missed = 0;
  #timer: Timer | undefined;

  constructor(clock: Clock, tell: (json: string, missed: number) => void) {
    this.#clock = clock;
    this.#tell = tell;
  }

  /** Undefined: what was said is nothing that can be told. */
  add(json: string | undefined, missed: number): void {
    this.#missed += missed;
    if (json === undefined) {
      this.#missed++;
      return;
    }
    if (this.#waiting !== undefined) this.#missed++;
    this.#waiting = json;
    const leftMs = this.#nextAt - this.#clock.now();
    // Also while a timer is set: a tool that holds the thread keeps it from running.
    if (leftMs <= 0) this.#flush();
    else this.#timer ??= this.#clock.timeout(Math.ceil(leftMs), () => this.#flush()).unref();
  }

  /** The call has ended: what waits is told at once, or is of no use any more. */
  end(isTold: boolean): void {
    if (isTold) this.#flush();
    this.#timer?.cancel();
  }

  #flush(): void {
    this.#timer?.cancel();
    this.#timer = undefined;
    const json = this.#waiting;
    if (json === undefined) return;
    const missed = this.#missed;
    this.#waiting = undefined;
    this.#missed = 0;
    this.#nextAt = this.#clock.now() + NOTE_LIMITS.everyMs;
    this.#tell(json, missed);
  }
}

/** What one call says, at its pace. Made when it says something: most calls never do. */
export class CallNotes {
  readonly #clock: Clock;
  readonly #tell: (note: ToolNote) => void;
  readonly #paces: { [K in NoteKind]?: NotePace } = {};

  constructor(clock: Clock, tell: (note: ToolNote) => void) {
    this.#clock = clock;
    this.#tell = tell;
  }

  add(kind: NoteKind, json: string | undefined, missed = 0): void {
    let pace = this.#paces[kind];
    if (pace === undefined) {
      pace = new NotePace(this.#clock, (text, left) => this.#tell({ kind, json: text, missed: left }));
      this.#paces[kind] = pace;
    }
    pace.add(json, missed);
  }

  /** Says what still waits. Where it was yielded, a preliminary result that waits is the last one: the result itself. */
  end({ alsoPreliminary }: { readonly alsoPreliminary: boolean }): void {
    this.#paces.progress?.end(true);
    this.#paces.preliminary?.end(alsoPreliminary);
  }
}

/** A value of the tool's as text; undefined when it is no plain data or too much. Never throws. */
export function noteText(value: unknown): string | undefined {
  try {
    // Before anything is written: what is too much must not hold the tool.
    if (roomLeft(value, NOTE_LIMITS.bytes, 0) < 0) return undefined;
    const json = JSON.stringify(plainResult(value));
    return Buffer.byteLength(json) > NOTE_LIMITS.bytes ? undefined : json;
  } catch {
    return undefined;
  }
}

/** A preliminary result as its text: what the tool yielded, without what makes a special answer of it. */
export function resultText(yielded: unknown): string | undefined {
  try {
    const made = contentMadeHere(yielded);
    if (made !== undefined) return noteText(made.value);
    if (roomLeft(yielded, NOTE_LIMITS.bytes, 0) < 0) return undefined;
    const plain = plainResult(yielded);
    const answer = readAnswer(sealAnswer(yielded, plain));
    return noteText(answer === undefined ? plain : "value" in answer ? answer.value : null);
  } catch {
    return undefined;
  }
}

const MAX_DEPTH = 128;

/** How much room is left when the value is written at its shortest; negative when there is none. */
function roomLeft(value: unknown, room: number, depth: number): number {
  if (typeof value === "string") return room - value.length;
  if (typeof value !== "object" || value === null) return room - 1;
  if (depth >= MAX_DEPTH || ArrayBuffer.isView(value) || value instanceof ArrayBuffer) return -1;
  if (Array.isArray(value)) {
    let left = room - value.length;
    for (let at = 0; at < value.length && left >= 0; at++) left = roomLeft(value[at], left, depth + 1);
    return left;
  }
  let left = room;
  for (const key in value) {
    left = roomLeft((value as Record<string, unknown>)[key], left - key.length, depth + 1);
    if (left < 0) return left;
  }
  return left;
}

/** The numbers kinds cross as. */
const KINDS: readonly NoteKind[] = ["progress", "preliminary"];

/** A note as it crosses a thread. */
export type PackedNote = readonly [kind: number, json: string, missed: number];

export function packNote({ kind, json, missed }: ToolNote): PackedNote {
  return [KINDS.indexOf(kind), json, missed];
}

/** A note that may come from foreign code, checked. Throws when it is none that {@link packNote} makes. */
export function readNote(packed: unknown): ToolNote {
  const [kindNumber, json, missed] = Array.isArray(packed) ? (packed as readonly unknown[]) : [];
  const kind = typeof kindNumber === "number" ? KINDS[kindNumber] : undefined;
  if (kind === undefined || typeof json !== "string" || !Number.isSafeInteger(missed) || (missed as number) < 0)
    throw new TypeError("It is no note of a tool.");
  if (json.length > NOTE_LIMITS.bytes || Buffer.byteLength(json) > NOTE_LIMITS.bytes)
    throw new TypeError("A note of a tool is too long.");
  // What is no JSON, or nested too deep, throws.
  plainResult(JSON.parse(json));
  return { kind, json, missed: missed as number };
}

export function noteValue({ json }: Pick<ToolNote, "json">): Json {
  return JSON.parse(json) as Json;
}
