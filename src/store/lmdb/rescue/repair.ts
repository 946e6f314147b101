import { existsSync, mkdtempSync, renameSync, rmSync } from "node:fs";
import { join } from "node:path";
import {
  type Head,
  isOfJournal,
  nodeId,
  orderKey,
  type Part,
  placeOf,
  type ResultPart,
  type Row,
  rowKey,
  type StoredHead,
  segmentId,
  type TextPart,
  uncounted,
} from "../../../kernel/index.js";
import { encode } from "../../../wire/index.js";
import {
  childKey,
  decodeSegment,
  journalKey,
  outlinesOf,
  placeOfSession,
  readHistory,
  seal,
  sealHead,
  sealJournalRow,
  sealRow,
  sealTombstone,
  segmentOutline,
} from "../../records/index.js";
import { hashesIn, segmentIdsOf } from "../../transfer/index.js";
import { currentMeta, fileOf } from "../file/file.js";
import { damagedStore } from "../file/open-errors.js";
import type { PageFile } from "../file/pages.js";
import { attempt, type Finding } from "./finding.js";
import { createLmdb, type LmdbRecord } from "./new-store.js";
import { ownerOf, type RawStore, Salvage, statesOf } from "./raw-store.js";
import {
  componentFindings,
  fileFindings,
  journalFindings,
  sessionFindings,
  verifyState,
  whileHeld,
  withFile,
} from "./verify.js";
import { rowFindings } from "./verify-rows.js";
import { mendedWaiting } from "./verify-waiting.js";

/** What became of a session that was not whole. */
export interface RepairedSession {
  readonly sessionId: string;
  /**
   * `changed`: goes on without what was lost, one revision further unless only rows were. `dropped`: nothing of it could
   * be saved, its rows neither.
   */
  readonly outcome: "changed" | "dropped";
  /** Where its history ends now, and where it ended; null: at nothing. */
  readonly leaf: string | null;
  readonly leafBefore: string | null;
  readonly lost: readonly Finding[];
}

export interface RepairReport {
  readonly path: string;
  /** False: the store was whole, and nothing was touched. */
  readonly changed: boolean;
  /**
   * A file has its newest state and the one before it. When only that one could be read, or nobody can tell which is
   * which, the last transaction may be lost, and what it changed is not known.
   */
  readonly lastWrite: "kept" | "may_be_lost";
  /** The store as it was, kept beside the repaired one. */
  readonly damagedFile?: string;
  readonly file: readonly Finding[];
  /** Sessions that are not what they were; the others are, but for what `file` and `lastWrite` say. */
  readonly sessions: readonly RepairedSession[];
  /** Rows of no session that were lost, and what was wrong with lists, which are made anew. */
  readonly others: readonly Finding[];
  /** Sessions that were there and of which not even the name is left. */
  readonly unnamedSessions: number;
}

/**
 * Builds a store anew from what can be read of a damaged one that nobody has open. Each session goes back to its last
 * state that is whole: a history that breaks off ends before the break, what cannot be read beside it is left out (of an
 * attachment a word stays that it was there), and the report says all of it. The damaged file is kept. Throws `store_damaged` when nothing at all can be read.
 *
 * @example
 * const { sessions, damagedFile } = repairStore("./data");
 * for (const { sessionId, outcome, lost } of sessions) console.log(sessionId, outcome, lost);
 */
export function repairStore(path: string): RepairReport {
  return whileHeld(path, () => {
    const rebuilt = withFile(path, (file) => {
      const found = fileFindings(path, file);
      const [newest, ...older] = statesOf(file);
      if (newest === undefined)
        throw damagedStore(`Nothing can be read of the store at ${path}`, { details: { path, found } });
      const lastWrite = isCurrent(newest, file) ? "kept" : "may_be_lost";
      return rebuild([newest, ...older], { path, lastWrite, file: found });
    });
    return rebuilt.folder === undefined ? rebuilt.report : putInPlace(path, rebuilt.folder, rebuilt.report);
  });
}

function isCurrent(state: RawStore, file: PageFile): boolean {
  return attempt("file", () => currentMeta(file)).value?.transaction === state.transaction;
}

interface Rebuilt {
  readonly report: RepairReport;
  /** Where the new store is; absent when none is needed. */
  readonly folder?: string;
}

function rebuild(
  states: readonly [RawStore, ...RawStore[]],
  found: Pick<RepairReport, "path" | "lastWrite" | "file">,
): Rebuilt {
  const salvage = new Salvage(states);
  const [newest] = states;
  const lostRows = rowFindings(newest);
  const named = salvage.sessionIds();
  const sessions = [
    ...named.map((sessionId) => restore(salvage, sessionId)),
    ...unstoredIds(salvage, named).map((sessionId) => restoreUnstored(salvage, sessionId)),
  ].map((restored) => withLostRows(restored, lostRows));
  const repaired = sessions.flatMap(({ report }) => (report === undefined ? [] : [report]));
  const unnamedSessions = Math.max(0, newest.expectedSessions - named.length);
  // What is damaged in the newest state may be whole in the older one: then nothing is lost, but the file is not whole.
  const { sessions: verified, others } = verifyState(newest);
  const report = { ...found, sessions: repaired, others, unnamedSessions };
  const isNewestWhole = verified.every(({ ok }) => ok) && others.length === 0;
  if (found.file.length === 0 && repaired.length === 0 && isNewestWhole) {
    return { report: { ...report, changed: false } };
  }
  const folder = mkdtempSync(join(found.path, "repair-"));
  createLmdb(folder, recordsOf(salvage, sessions), salvage.opening());
  return { folder, report: { ...report, changed: true } };
}

/** A session that lost only rows keeps its head and its journal. */
function withLostRows(restored: Restored, lostRows: ReadonlyMap<string, readonly Finding[]>): Restored {
  const { sessionId, stored, report } = restored;
  const lost = lostRows.get(sessionId) ?? [];
  if (lost.length === 0) return restored;
  if (report !== undefined) return { ...restored, report: { ...report, lost: [...report.lost, ...lost] } };
  const leaf = stored?.head.leaf ?? null;
  return { ...restored, report: { sessionId, outcome: "changed", leaf, leafBefore: leaf, lost } };
}

function putInPlace(path: string, folder: string, report: RepairReport): RepairReport {
  let number = 1;
  const kept = () => `${fileOf(path)}.damaged-${number}`;
  while (existsSync(kept())) number++;
  renameSync(fileOf(path), kept());
  renameSync(fileOf(folder), fileOf(path));
  rmSync(folder, { recursive: true });
  rmSync(join(path, "lock.mdb"), { force: true });
  return { ...report, damagedFile: kept() };
}

interface Restored {
  readonly sessionId: string;
  /** Absent for a session that was dropped, and for one of which there is only the journal of its first turn. */
  readonly stored?: StoredHead;
  /** A journal belongs to the revision it was recorded over, so a head that is put back has none. */
  readonly keepsJournal: boolean;
  /** Absent for a session that is what it was. */
  readonly report?: RepairedSession;
}

function unstoredIds(salvage: Salvage, named: readonly string[]): string[] {
  const others = new Set([...named, ...salvage.deletedIds()]);
  return salvage.journalIds().filter((id) => !others.has(id));
}

function restoreUnstored(salvage: Salvage, sessionId: string): Restored {
  const lost = journalFindings(salvage, sessionId);
  if (lost.length === 0) return { sessionId, keepsJournal: true };
  return {
    sessionId,
    keepsJournal: false,
    report: { sessionId, outcome: "dropped", leaf: null, leafBefore: null, lost },
  };
}

/** The last state of a session that is whole. */
function restore(salvage: Salvage, sessionId: string): Restored {
  const { value: found, findings: lost } = attempt("head", () => salvage.storedHead(sessionId));
  if (found === undefined) {
    if (lost.length === 0) lost.push({ where: "head", code: "store_damaged", message: "Its head is gone." });
    const report: RepairedSession = { sessionId, outcome: "dropped", leaf: null, leafBefore: null, lost };
    return { sessionId, keepsJournal: false, report };
  }
  const { head } = found;
  lost.push(...sessionFindings(salvage, head));
  if (lost.length === 0 && !salvage.isOlder(sessionId))
    return { sessionId, keepsJournal: true, stored: withoutLostParent(salvage, found) };
  const whole = wholeHead(salvage, head);
  return {
    sessionId,
    keepsJournal: false,
    stored: { head: whole, at: found.at, receipts: [] },
    report: { sessionId, outcome: "changed", leaf: whole.leaf, leafBefore: head.leaf, lost },
  };
}

function wholeHead(salvage: Salvage, head: Head): Head {
  const { frames } = head;
  const isThere = ([name, hash]: readonly [string, string]) => componentFindings(salvage, name, hash).length === 0;
  const changed: Head = {
    ...uncounted(head),
    revision: head.revision + 1,
    operation: "repair",
    leaf: isWhole(salvage, head.leaf) ? head.leaf : lastWholeLeaf(salvage, head),
    components: Object.fromEntries(Object.entries(head.components).filter(isThere)),
    ...(frames && { frames: frames.filter(({ leaf }) => isWhole(salvage, leaf)) }),
  };
  return withoutLostParent(salvage, { head: changed, at: 0, receipts: [] }).head;
}

/** Where a session was forked is only a remark; it may be lost without harm. */
function withoutLostParent(salvage: Salvage, stored: StoredHead): StoredHead {
  const { parent } = stored.head;
  if (parent === undefined || isWhole(salvage, parent.leaf)) return stored;
  return { ...stored, head: { ...stored.head, parent: { ...parent, leaf: null } } };
}

/** Its own newest segment that leads to the root, or where it was forked. */
function lastWholeLeaf(salvage: Salvage, { sessionId, revision, parent }: Head): string | null {
  for (let at = revision; at >= 1; at--) {
    const id = segmentId(sessionId, at);
    const { value: leaf } = attempt("history", () => {
      const bytes = salvage.segment(id);
      return bytes && nodeId(id, segmentOutline(bytes).count - 1);
    });
    if (leaf !== undefined && isWhole(salvage, leaf)) return leaf;
  }
  const forked = parent?.leaf ?? null;
  return isWhole(salvage, forked) ? forked : null;
}

function isWhole(salvage: Salvage, leaf: string | null): boolean {
  return attempt("history", () => readHistory(salvage, leaf)).findings.length === 0;
}

/** Everything the sessions lead to, as it is stored. */
function* recordsOf(salvage: Salvage, sessions: readonly Restored[]): Generator<LmdbRecord> {
  const segments = new Set<string>();
  const hashes = new Set<string>();
  const living = new Set<string>();
  for (const { sessionId, stored, keepsJournal } of sessions) {
    for (const row of keepsJournal ? salvage.journal(sessionId) : []) {
      for (const hash of hashesIn(row.bytes)) hashes.add(hash);
      yield { table: "journal", key: journalKey(sessionId, row.sequence), bytes: sealJournalRow(sessionId, row) };
    }
    if (stored === undefined) continue;
    const { head } = stored;
    living.add(sessionId);
    yield* headRecords(stored);
    const past = { ...head, leaf: head.parent?.leaf ?? null, frames: [] };
    for (const state of [head, past]) for (const id of segmentIdsOf(outlinesOf(salvage), state)) segments.add(id);
    for (const hash of Object.values(head.components)) hashes.add(hash);
  }
  const dropped = new Set(sessions.flatMap(({ report }) => (report?.outcome === "dropped" ? [report.sessionId] : [])));
  for (const row of [...wholeRows(salvage, dropped), ...mendedWaiting(salvage, sessions)]) {
    for (const hash of hashesIn(row.value)) hashes.add(hash);
    yield* rowRecords(row);
  }
  for (const id of segments) {
    const bytes = salvage.segment(id) as Uint8Array;
    for (const hash of hashesIn(bytes)) hashes.add(hash);
    yield { table: "segments", key: id, bytes: seal(withoutLost(salvage, bytes)) };
  }
  for (const hash of hashes) {
    const bytes = salvage.componentIfWhole(hash);
    if (bytes === undefined) continue;
    for (const inner of hashesIn(bytes)) hashes.add(inner);
    yield { table: "components", key: hash, bytes };
  }
  yield* tombstones(salvage, living, segments);
}

/** With its places in lists, which are never taken from the damaged store. */
function* headRecords(stored: StoredHead): Generator<LmdbRecord> {
  const { sessionId } = stored.head;
  const { order, parent } = placeOf(stored);
  yield { table: "heads", key: sessionId, bytes: sealHead(stored) };
  yield { table: "order", key: placeOfSession(sessionId, order), bytes: NO_VALUE };
  if (parent !== undefined) yield { table: "children", key: childKey(parent, sessionId), bytes: NO_VALUE };
}

/** All but those of calls that wait, which are as the journals have them. */
function* wholeRows(salvage: Salvage, dropped: ReadonlySet<string>): Generator<Row> {
  for (const key of salvage.rowKeys()) {
    const row = salvage.rowAt(key);
    if (row !== undefined && !isOfJournal(row) && !dropped.has(row.session ?? "")) yield row;
  }
}

function* rowRecords(row: Row): Generator<LmdbRecord> {
  yield { table: "rows", key: rowKey(row), bytes: sealRow(row) };
  if (row.order !== undefined) yield { table: "order", key: orderKey(row, row.order), bytes: NO_VALUE };
}

const NO_VALUE = new Uint8Array();

/** A segment in whose messages a word stands for each attachment that was lost; otherwise they could not be sent any more. */
function withoutLost(salvage: Salvage, bytes: Uint8Array): Uint8Array {
  const lost = new Set(hashesIn(bytes).filter((hash) => salvage.componentIfWhole(hash) === undefined));
  if (lost.size === 0) return bytes;
  const { id, parent, messages } = decodeSegment(bytes);
  const replaced = <P extends Part | ResultPart>(part: P): P | TextPart => {
    const isLost = part.type === "attachment" && part.source.kind === "stored" && lost.has(part.source.hash);
    if (isLost) return { type: "text", text: `[lost attachment: ${part.mediaType}]` };
    if (part.type !== "tool_result" || part.content === undefined) return part;
    return { ...part, content: part.content.map(replaced) };
  };
  return encode({
    id,
    parent,
    messages: messages.map((message) => ({ ...message, parts: message.parts.map(replaced) })),
  });
}

/** Ids that must not be used again: those of deleted sessions, and those whose sessions were lost but not all segments. */
function* tombstones(
  salvage: Salvage,
  living: ReadonlySet<string>,
  segments: ReadonlySet<string>,
): Generator<LmdbRecord> {
  const gone = new Set(salvage.deletedIds());
  for (const id of salvage.sessionIds()) gone.add(id);
  for (const id of segments) gone.add(ownerOf(id));
  for (const sessionId of gone) {
    if (living.has(sessionId)) continue;
    yield { table: "deleted", key: sessionId, bytes: sealTombstone({ sessionId, revision: 0, at: 0 }) };
  }
}
