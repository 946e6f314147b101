import type { Message } from "./history.js";

/** A message that a model was sent and that is not stored, with the id of the stored one it stood behind. */
export interface UnstoredMessage {
  readonly behind: string;
  readonly message: Message;
}

/** What is kept of them: past that they are let go of all at once, as a window is cut. */
const MAX_MESSAGES = 16;
const MAX_LENGTH = 32_768;

export const NOTHING_UNSTORED: readonly UnstoredMessage[] = Object.freeze([]);

/** Those of the turns before with those of a turn, as far as memory is bounded; otherwise the turn's alone, or none. */
export function keptUnstored(
  before: readonly UnstoredMessage[],
  own: readonly UnstoredMessage[],
): readonly UnstoredMessage[] {
  const all = before.length === 0 ? own : [...before, ...own];
  return [all, own].find(isBounded) ?? NOTHING_UNSTORED;
}

function isBounded(all: readonly UnstoredMessage[]): boolean {
  return all.length <= MAX_MESSAGES && all.reduce((sum, { message }) => sum + lengthOf(message), 0) <= MAX_LENGTH;
}

function lengthOf({ parts }: Message): number {
  return parts.reduce((sum, part) => sum + (part.type === "text" ? part.text.length : 0), 0);
}

/** Messages with those that were sent among them. One whose place is not there is left out; without any it is the same list. */
export function withUnstored(messages: readonly Message[], unstored: readonly UnstoredMessage[]): readonly Message[] {
  if (unstored.length === 0) return messages;
  return messages.flatMap((each) => {
    const behind = unstored.filter((one) => one.behind === each.id);
    return behind.length === 0 ? [each] : [each, ...behind.map(({ message }) => message)];
  });
}
