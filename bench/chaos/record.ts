import { codeOf } from "../measuring/neighbours.js";

/** What became of the turns of one session, as whoever asked for them was told. */
export interface Told {
  /** Finished: they must be in the store, once. */
  readonly finished: Set<string>;
  /** Refused: they are in the store once or not at all. */
  readonly refused: Set<string>;
  /** How often a turn was refused; the same one may be, again. */
  refusals: number;
}

/** Every turn that was asked for, and what it was told: finished, or why not. */
export class TurnRecord {
  readonly sessions = new Map<string, Told>();
  readonly violations: string[] = [];
  readonly codes = new Map<string, number>();
  readonly open = new Set<string>();
  finished = 0;

  /** Asks for a turn under its own name and keeps what comes of it. */
  async ask(sessionId: string, name: string, turn: () => Promise<string>): Promise<boolean> {
    const told = this.sessions.get(sessionId) ?? { finished: new Set(), refused: new Set(), refusals: 0 };
    this.sessions.set(sessionId, told);
    this.open.add(name);
    try {
      const text = await turn();
      if (text !== answerTo(name)) this.violations.push(`The turn ${name} of ${sessionId} answered "${text}".`);
      this.finished++;
      told.finished.add(name);
      told.refused.delete(name);
      return true;
    } catch (error) {
      const code = codeOf(error);
      this.codes.set(code, (this.codes.get(code) ?? 0) + 1);
      told.refusals++;
      if (!told.finished.has(name)) told.refused.add(name);
      return false;
    } finally {
      this.open.delete(name);
    }
  }
}

export function answerTo(name: string): string {
  return `You said ${name}.`;
}
