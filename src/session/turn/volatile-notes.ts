import { type Message, type UnstoredMessage, volatileIdOf } from "../../kernel/index.js";

/** A text that changes from turn to turn, where the model read it first. */
interface Note {
  readonly step: number;
  /** Messages of the turn that stand before it. */
  readonly after: number;
  readonly text: string;
  readonly message: Message;
}

/**
 * What changes every turn, as messages behind the history. They are made anew for each turn and never stored. Inside a
 * turn a note stays where the model read it first, and one that says something new follows behind: so every request of a
 * turn begins with the one before, to the byte. They are user messages, because several providers take a system message
 * at the beginning only.
 */
export class VolatileNotes {
  readonly #turnId: string;
  #notes: readonly Note[] = [];
  #asked: number | undefined;

  constructor(turnId: string) {
    this.#turnId = turnId;
  }

  /** Messages of the turn that stood before its first model call; what is volatile stands behind them. */
  get stable(): number {
    return this.#asked ?? 0;
  }

  /** Says a text before a model call, unless it was said last. Returns what this call is the first to read. */
  say(text: string, { step, after }: Pick<Note, "step" | "after">): string | undefined {
    this.#asked ??= after;
    if (text === "" || this.#notes.at(-1)?.text === text) return undefined;
    this.#add({ step, after, text });
    return text;
  }

  /** A call that was answered before a crash keeps what it was asked with, whatever would be said now. */
  keep(text: string | undefined, { step, after }: Pick<Note, "step" | "after">): void {
    this.#notes = this.#notes.filter((note) => note.step !== step);
    if (text !== undefined) this.#add({ step, after, text });
  }

  #add(note: Omit<Note, "message">): void {
    const { step, text } = note;
    const parts = [{ type: "text" as const, text: `${OPEN}\n${text}\n${CLOSE}` }];
    this.#notes = [...this.#notes, { ...note, message: { id: volatileIdOf(this.#turnId, step), role: "user", parts } }];
  }

  /** The turn's messages with the notes among them; the same list when there are none. */
  within(messages: readonly Message[]): readonly Message[] {
    if (this.#notes.length === 0) return messages;
    const all: Message[] = [];
    let from = 0;
    for (const { after, message } of this.#notes) {
      all.push(...messages.slice(from, after), message);
      from = after;
    }
    return [...all, ...messages.slice(from)];
  }

  /** The notes, each with the stored message it stands behind. */
  placed(messages: readonly Message[]): readonly UnstoredMessage[] {
    return this.#notes.flatMap(({ after, message }) => {
      const behind = messages[after - 1]?.id;
      return behind === undefined ? [] : [{ behind, message }];
    });
  }
}

const OPEN = '<context from="runtime">';
const CLOSE = "</context>";
