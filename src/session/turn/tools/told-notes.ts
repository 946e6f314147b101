import type { ToolCall } from "../../../kernel/index.js";
import { CallNotes, noteValue, type ToolNote } from "../../../tools/index.js";
import type { Turn } from "../turn.js";

/**
 * What the running calls of a batch say, told to whoever looks. At the same pace again as where it was said: that is a
 * thread of foreign code, which may keep to none. Made when a call first says something.
 */
export class ToldNotes {
  readonly #turn: Turn;
  readonly #calls: readonly ToolCall[];
  readonly #byCall = new Map<string, CallNotes>();

  constructor(turn: Turn, calls: readonly ToolCall[]) {
    this.#turn = turn;
    this.#calls = calls;
  }

  add(callId: string, note: ToolNote): void {
    const call = this.#isShown ? this.#calls.find((each) => each.callId === callId) : undefined;
    if (call === undefined) return;
    let notes = this.#byCall.get(callId);
    if (notes === undefined) {
      notes = new CallNotes(this.#turn.session.services.clock, (due) => this.#tell(call, due));
      this.#byCall.set(callId, notes);
    }
    notes.add(note.kind, note.json, note.missed);
  }

  /** The call's body has ended: what waits is told now. */
  end(callId: string): void {
    this.#byCall.get(callId)?.end({ alsoPreliminary: true });
    this.#byCall.delete(callId);
  }

  get #isShown(): boolean {
    return this.#turn.request.isShown?.() === true;
  }

  #tell({ callId, toolName }: ToolCall, note: ToolNote): void {
    if (!this.#isShown) return;
    const left = note.missed > 0 ? { missed: note.missed } : {};
    const { emit } = this.#turn.request;
    const value = noteValue(note);
    if (note.kind === "progress") emit({ type: "tool_progress", callId, toolName, value, ...left });
    else emit({ type: "tool_preliminary", callId, toolName, output: value, ...left });
  }
}
