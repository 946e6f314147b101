import type {
  CallLayers,
  ContextPiece,
  JournalRow,
  PromptContribution,
  PromptLayer,
  SessionConfig,
  ToolSpec,
  ToolState,
  TurnDirectives,
  TurnIssue,
  UnstoredMessage,
} from "../../kernel/index.js";
import type { StoreClient } from "../../store/index.js";
import { decode } from "../../wire/index.js";
import { readPart, type StoredPart } from "../stored/index.js";
import { ASKED, notedIn, type UnfinishedTurn } from "./unfinished-turn.js";

/** What counts for the whole turn. */
export interface RecordedTurn {
  /** The plugin whose protocol it began with: to another one its answers say nothing. */
  readonly protocol: string;
  /** The name of its model, of those a host can say. */
  readonly model?: string;
  readonly config: Partial<SessionConfig>;
  readonly calling: Omit<CallLayers, "turn">;
  readonly context: RecordedContext;
  /** What it reads beside the history, of a session that was forked. */
  readonly inherited?: readonly UnstoredMessage[];
  /** What its `beforeTurn` hooks asked for. */
  readonly directives?: TurnDirectives;
  /** The session's tools, when they had been changed by then: the change is stored with the turn, so a crash takes it back. */
  readonly toolState?: ToolState;
  /** What had gone wrong by then. */
  readonly issues?: readonly TurnIssue[];
  /** What its prompt is made of, for a protocol that has it made before every call. */
  readonly prompt?: { readonly layers: readonly PromptLayer[]; readonly contributions: readonly PromptContribution[] };
}

/** What of the history is read: from a place on, or as context transforms left it. */
export type RecordedContext =
  | { readonly from: number }
  | {
      readonly pieces: readonly ContextPiece[];
      readonly tools: readonly string[];
      readonly includeBaseTools: boolean;
    };

/** What a call of the model was asked with beside its messages. */
export interface RecordedCall {
  readonly system: string;
  readonly volatile: string;
  /** The tools of the turn. */
  readonly tools: readonly ToolSpec[];
  /** Those the provider is told of, where the protocol tells it of others. */
  readonly offered?: readonly ToolSpec[];
}

/** The same as its row has it. Absent: as in the row before. */
export interface RecordedCallRow {
  readonly system?: StoredPart;
  readonly volatile?: string;
  readonly tools?: StoredPart;
  /** Null: the provider is told of all of them. */
  readonly offered?: StoredPart | null;
}

/** A turn that a crash left behind, with what it was asked with. */
export interface AskedTurn extends RecordedTurn {
  readonly calls: readonly { readonly step: number; readonly call: RecordedCall }[];
  /** Model calls whose answers are recorded. */
  readonly answered: number;
}

/**
 * Reads what a turn was asked with. Undefined for one that an older release left behind, or that was not asked yet: it
 * is taken up by doing again what it did.
 */
export async function askedTurn(
  { rows }: UnfinishedTurn,
  store: Pick<StoreClient, "component">,
): Promise<AskedTurn | undefined> {
  const first = notedIn<RecordedTurn & RecordedCallRow>(new Map(rows.map((row) => [row.key, row])));
  if (first === undefined) return undefined;
  const { system, volatile, tools, offered, ...turn } = first.value;
  const calls: { step: number; call: RecordedCall }[] = [];
  let call: RecordedCall = { system: "", volatile: "", tools: [] };
  for (const { step, row } of [{ step: 0, row: { system, volatile, tools, offered } }, ...laterCalls(rows)]) {
    const read = await readCall(call, row, store);
    if (read === undefined) return undefined;
    call = read;
    calls.push({ step, call });
  }
  return { ...turn, calls, answered: rows.filter(({ key }) => key.startsWith("model:")).length };
}

/** What a call was asked with, by what was recorded last until then. */
export function callAt({ calls }: AskedTurn, step: number): RecordedCall {
  const known = calls.findLast((each) => each.step <= step) ?? calls[0];
  return (known as { readonly call: RecordedCall }).call;
}

function laterCalls(rows: readonly JournalRow[]): { readonly step: number; readonly row: RecordedCallRow }[] {
  return rows
    .filter(({ key }) => key.startsWith(ASKED))
    .map(({ key, bytes }) => ({ step: Number(key.slice(ASKED.length)), row: decode<RecordedCallRow>(bytes) }))
    .sort((a, b) => a.step - b.step);
}

/** Undefined when a part is gone: what was not asked for with it cannot be asked for again. */
async function readCall(
  before: RecordedCall,
  row: { readonly [F in keyof RecordedCallRow]: RecordedCallRow[F] | undefined },
  store: Pick<StoreClient, "component">,
): Promise<RecordedCall | undefined> {
  const read = <T>(part: StoredPart | undefined, otherwise: T) =>
    part === undefined ? otherwise : readPart<T>(part, store);
  const [system, tools, offered] = await Promise.all([
    read(row.system, before.system),
    read(row.tools, before.tools),
    row.offered === null ? null : read(row.offered, before.offered ?? null),
  ]);
  if (system === undefined || tools === undefined || offered === undefined) return undefined;
  return { system, tools, volatile: row.volatile ?? before.volatile, ...(offered !== null && { offered }) };
}
