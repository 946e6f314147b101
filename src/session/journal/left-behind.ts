import {
  addEntry,
  addUsage,
  answerKeyOf,
  completionKeyOf,
  type Ledger,
  type ModelCallRecord,
  type ModelResponse,
  NO_USAGE,
  OWN_SOURCE,
  type TurnDirectives,
  type Usage,
} from "../../kernel/index.js";
import { decode } from "../../wire/index.js";
import type { RecordedTurn } from "./recorded-turn.js";
import { notedIn, type UnfinishedTurn } from "./unfinished-turn.js";

/** What an unfinished turn has added to its session, as its journal has it: what it will have again when it is taken up. */
export interface LeftBehind {
  readonly messages: number;
  /** Model calls that were answered, and what they cost. */
  readonly calls: number;
  /** What those said, block by block, with a blank line between. */
  readonly text: string;
  readonly usage: Usage;
  readonly spent: Ledger;
}

interface RecordedAnswer {
  readonly response: ModelResponse;
  readonly record: ModelCallRecord;
}

/** What plugins said of their own accord between an answer and its results is in no row, and not counted. */
export function leftBehind(sessionId: string, { turnId, start, rows }: UnfinishedTurn): LeftBehind {
  const byKey = new Map(rows.map((row) => [row.key, row]));
  const read = <T>(key: string): T | undefined => {
    const row = byKey.get(key);
    return row && decode<T>(row.bytes);
  };
  let messages = start.stopped === undefined ? 1 : 0;
  messages += notedIn<RecordedTurn>(byKey)?.value.directives?.messages.length ?? 0;
  let [usage, spent]: [Usage, Ledger] = [NO_USAGE, []];
  const blocks: string[] = [];
  let calls = 0;
  for (; ; calls++) {
    const answer = read<RecordedAnswer>(`model:${calls}`);
    if (answer === undefined) break;
    const { response, record } = answer;
    usage = addUsage(usage, response.usage);
    spent = addEntry(spent, { source: OWN_SOURCE, model: record.model, usage: response.usage });
    for (const part of response.parts) if (part.type === "text") blocks.push(part.text);
    if (response.parts.length > 0) messages++;
    if (hasResults(calls, response)) messages++;
    const delivered = read<Delivered>(`checkpoint:${calls}`);
    messages += (delivered?.inputs?.length ?? 0) + (delivered?.directives.messages.length ?? 0);
  }
  return { messages, calls, text: blocks.join("\n\n"), usage, spent };

  /** What the answer asked for was done: tool calls, or code. */
  function hasResults(step: number, { parts }: ModelResponse): boolean {
    if (byKey.has(`code:${step + 1}`)) return true;
    const asked = parts.flatMap((part) => (part.type === "tool_call" ? [part.callId] : []));
    return asked.length > 0 && (byKey.has(`model:${step + 1}`) || asked.every((callId) => isDone(step, callId)));
  }

  function isDone(step: number, callId: string): boolean {
    const of = `tools:${step + 1}:${callId}:`;
    const last = rows.findLast(({ key }) => key.startsWith(of) && !key.endsWith(":sleep"));
    if (last === undefined) return false;
    const { pending } = decode<{ readonly pending?: unknown }>(last.bytes);
    return pending === undefined || byKey.has(answerKeyOf(completionKeyOf(sessionId, turnId, callId)));
  }
}

interface Delivered {
  readonly inputs?: readonly unknown[];
  readonly directives: TurnDirectives;
}
