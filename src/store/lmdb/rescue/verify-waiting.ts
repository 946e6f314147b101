import {
  completionKeyOf,
  type Head,
  isOfJournal,
  isRecord,
  type JournalRow,
  type Json,
  type PendingCall,
  type Row,
  type RowChange,
  rowKey,
  rowNameOf,
} from "../../../kernel/index.js";
import { decode } from "../../../wire/index.js";
import { rowsOfCall, unansweredIn } from "../../records/index.js";
import { attempt, type Finding } from "./finding.js";
import type { RawStore, Salvage } from "./raw-store.js";

/** What a session's journal and the rows of its calls that wait say of each other. */
interface Waiting {
  /** Rows of a call that nothing in the journal waits for: nobody could answer it, and it would be listed for ever. */
  readonly stray: readonly Row[];
  /** Rows of calls that wait and would be found in no list. */
  readonly missing: readonly RowChange[];
}

interface WaitingFacts {
  readonly sessionId: string;
  readonly tenant: string | undefined;
  readonly journal: readonly JournalRow[];
  /** Those of its calls that wait, as far as they are whole. */
  readonly rows: readonly Row[];
}

/** What the rows of a session's calls that wait should be. */
export function checkWaiting({ sessionId, tenant, journal, rows }: WaitingFacts): Waiting {
  const stays = new Set<string>();
  const needed: RowChange[] = [];
  for (const { row, ...awaited } of unansweredIn(sessionId, journal)) {
    const { toolName, args: asked = null } = requestOf(row);
    const { since = row.at, deadlineMs, callId, announcement, allowEdit, args = asked } = awaited;
    const call: PendingCall = {
      key: completionKeyOf(sessionId, row.turnId, awaited.id),
      sessionId,
      ...(tenant !== undefined && { tenant }),
      turnId: row.turnId,
      callId,
      toolName: toolName ?? "",
      args,
      announcement,
      ...(allowEdit === true && { allowEdit }),
      since,
      ...(deadlineMs !== undefined && { deadline: since + deadlineMs }),
    };
    for (const name of rowsOfCall(call)) stays.add(rowKey(name));
    // An older release wrote no rows, and a request that was too long to be kept names no tool.
    if (awaited.since !== undefined && toolName !== undefined && surelyWaits(row, journal, call.deadline))
      needed.push(...rowsOfCall(call));
  }
  const there = new Set(rows.map(rowKey));
  return {
    stray: rows.filter((row) => !stays.has(rowKey(row))),
    missing: needed.filter((name) => !there.has(rowKey(name))),
  };
}

/** Of a request that was long, texts in the arguments are shortened. */
function requestOf({ envelope }: JournalRow): { readonly toolName?: string; readonly args?: Json } {
  const { value } = attempt("journal", () => JSON.parse(envelope ?? "null") as Json);
  if (!isRecord(value)) return {};
  const { toolName, args } = value;
  return { ...(typeof toolName === "string" && { toolName }), ...(args !== undefined && { args }) };
}

/**
 * A call that was late or cancelled waits no more, and that is in no row: its own go with whatever is written next. So only
 * of one whose step goes on is it sure that it waits.
 */
function surelyWaits({ turnId, key }: JournalRow, journal: readonly JournalRow[], deadline = Infinity): boolean {
  const own = journal.filter((row) => row.turnId === turnId);
  const last = own.at(-1);
  const step = stepOf(key);
  return (
    last !== undefined &&
    last.at < deadline &&
    own.slice(own.findIndex((row) => row.key === key)).every((row) => {
      return isBeside(row.key) || stepOf(row.key) === step;
    })
  );
}

/** `tools:3:` of a row of the fourth step's calls; undefined for rows of anything else. */
function stepOf(key: string): string | undefined {
  return /^(?:tools|approval):(\d+):/.exec(key)?.[1];
}

/** Answers to calls, and that the turn was taken up and went on for a while. */
function isBeside(key: string): boolean {
  return /^(?:answer|resumed|lasted|waits|left):/.test(key);
}

/** What is wrong with the rows of calls that wait, by their session. */
export function waitingFindings(state: RawStore): Map<string, Finding[]> {
  const found = new Map<string, Finding[]>();
  const rows = waitingRows(state.keys("rows"), (key) => attempt("row", () => state.rowAt(key)).value);
  for (const sessionId of new Set([...state.journalIds(), ...rows.keys()])) {
    const { value: head } = attempt("head", () => state.head(sessionId));
    // A journal that cannot be read is told of by itself, and goes with its rows.
    const { value: journal } = attempt("journal", () => state.journal(sessionId));
    if (journal === undefined) continue;
    const own = rows.get(sessionId) ?? [];
    const { stray, missing } = checkWaiting({ sessionId, tenant: tenantOf(head, journal), journal, rows: own });
    const findings = [
      ...stray.map((row) => finding(row, "says that a call waits, and nothing in the journal waits for it")),
      ...missing.map((row) => finding(row, "is missing: a call waits, and is in no list of those that do")),
    ];
    if (findings.length > 0) found.set(sessionId, findings);
  }
  return found;
}

function finding({ table, key }: Pick<Row, "table" | "key">, what: string): Finding {
  return { where: `row ${table} ${key}`, code: "store_damaged", message: `Row ${key} of ${table} ${what}.` };
}

/** The rows of calls that wait, by session, as far as they are whole. */
function waitingRows(keys: readonly string[], read: (key: string) => Row | undefined): Map<string, Row[]> {
  const rows = new Map<string, Row[]>();
  for (const key of keys) {
    if (!isOfJournal(rowNameOf(key))) continue;
    const row = read(key);
    if (row?.session !== undefined) rows.set(row.session, [...(rows.get(row.session) ?? []), row]);
  }
  return rows;
}

/** Of a session whose first turn waits there is no head: the row of its turn's beginning says whose it is. */
function tenantOf(head: Head | undefined, journal: readonly JournalRow[]): string | undefined {
  if (head !== undefined) return head.tenant;
  const start = journal.find(({ key }) => key === "start");
  return start && decode<{ readonly identity?: { readonly tenant?: string } } | null>(start.bytes)?.identity?.tenant;
}

/** The rows of calls that wait, as they are to be: of sessions that keep their journal, and of no others. */
export function mendedWaiting(
  salvage: Pick<Salvage, "journal" | "rowKeys" | "rowAt">,
  sessions: readonly {
    readonly sessionId: string;
    readonly keepsJournal: boolean;
    readonly stored?: { readonly head: Head };
  }[],
): Row[] {
  const rows = waitingRows(salvage.rowKeys(), (key) => salvage.rowAt(key));
  return sessions.flatMap(({ sessionId, keepsJournal, stored }) => {
    if (!keepsJournal) return [];
    const own = rows.get(sessionId) ?? [];
    const journal = salvage.journal(sessionId);
    const tenant = tenantOf(stored?.head, journal);
    const { stray, missing } = checkWaiting({ sessionId, tenant, journal, rows: own });
    const added = missing.map((row) => ({ ...row, value: row.value as Uint8Array, version: 1 }));
    return [...own.filter((row) => !stray.includes(row)), ...added];
  });
}
