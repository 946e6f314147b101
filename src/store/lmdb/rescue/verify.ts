import { existsSync } from "node:fs";
import { systemClock } from "../../../async/index.js";
import { attachmentsIn, componentMissing, type Head, isConversation, miscounted } from "../../../kernel/index.js";
import { acquireStoreLock } from "../../folder/index.js";
import { type ReaderAtOnce, readHistory } from "../../records/index.js";
import { checkTrees, currentMeta, fileOf, storeDamaged } from "../file/file.js";
import { storeOpenFailed } from "../file/open-errors.js";
import { PageFile, PageProblem } from "../file/pages.js";
import { attempt, type Finding } from "./finding.js";
import { type RawStore, statesOf } from "./raw-store.js";
import { listFindings, rowFindings } from "./verify-rows.js";

export interface SessionReport {
  readonly sessionId: string;
  readonly ok: boolean;
  readonly findings: readonly Finding[];
}

export interface VerifyReport {
  readonly path: string;
  /** Nothing is wrong with anything. */
  readonly ok: boolean;
  /** What is wrong with the file; with anything here, it cannot be opened. */
  readonly file: readonly Finding[];
  readonly sessions: readonly SessionReport[];
  /** What is wrong with rows that are of no session here, and with the lists that rows and sessions are found by. */
  readonly others: readonly Finding[];
}

/**
 * Reads everything in a store that nobody has open, and says of each session whether all of it can be read. Changes
 * nothing. Throws `store_held` while somebody has it open, `store_open_failed` when there is none.
 *
 * @example
 * const { ok, sessions } = verifyStore("./data");
 * for (const { sessionId, findings } of sessions) if (findings.length > 0) console.log(sessionId, findings);
 */
export function verifyStore(path: string): VerifyReport {
  const verify = (file: PageFile): VerifyReport => {
    const findings = fileFindings(path, file);
    const [state] = statesOf(file);
    const { sessions, others } = state === undefined ? { sessions: [], others: [] } : verifyState(state);
    const ok = findings.length === 0 && others.length === 0 && sessions.every((session) => session.ok);
    return { path, ok, file: findings, sessions, others };
  };
  return whileHeld(path, () => withFile(path, verify));
}

/** Everything in one state of a store. */
export function verifyState(state: RawStore): Pick<VerifyReport, "sessions" | "others"> {
  const rows = rowFindings(state);
  const ids = sessionsOf(state);
  const sessions = ids.map((id) => verifySession(state, id, rows.get(id) ?? []));
  for (const id of ids) rows.delete(id);
  return { sessions, others: [...[...rows.values()].flat(), ...listFindings(state)] };
}

/** Also those of which there is only a journal: their first turn was not finished. */
function sessionsOf(state: Pick<RawStore, "sessionIds" | "journalIds">): string[] {
  return [...new Set([...state.sessionIds(), ...state.journalIds()])].sort();
}

/** Is there a store to look at? */
export function checkThere(path: string): void {
  if (existsSync(fileOf(path))) return;
  throw storeOpenFailed(path, "there is none");
}

/** Does something to a store that nobody else has open meanwhile. */
export function whileHeld<T>(path: string, use: () => T): T {
  checkThere(path);
  // No runtime has the store, and so none could bring its clock.
  const lock = acquireStoreLock(path, systemClock);
  try {
    return use();
  } finally {
    lock.release();
  }
}

export function withFile<T>(path: string, use: (file: PageFile) => T): T {
  const file = new PageFile(fileOf(path));
  try {
    return use(file);
  } finally {
    file.close();
  }
}

export function fileFindings(path: string, file: PageFile): Finding[] {
  const { findings } = attempt("file", () => checkFile(path, file));
  const [state] = statesOf(file);
  if (state === undefined) return findings;
  const problems = [...state.problems];
  if (state.opening === undefined) problems.push("how often it was opened cannot be read");
  return [...findings, ...problems.map((message) => ({ where: "file", code: "store_damaged", message }))];
}

function checkFile(path: string, file: PageFile): void {
  try {
    checkTrees(file, currentMeta(file));
  } catch (error) {
    throw error instanceof PageProblem ? storeDamaged(path, error) : error;
  }
}

function verifySession(state: RawStore, sessionId: string, ofRows: readonly Finding[]): SessionReport {
  const { value: head, findings } = attempt("head", () => state.head(sessionId));
  findings.push(...(head === undefined ? journalFindings(state, sessionId) : sessionFindings(state, head)), ...ofRows);
  return { sessionId, ok: findings.length === 0, findings };
}

type SessionReader = Pick<ReaderAtOnce, "segment" | "component" | "journal">;

/** Everything of a session that cannot be read. */
export function sessionFindings(reader: SessionReader, head: Head): Finding[] {
  const { sessionId, leaf, frames = [], components } = head;
  return [
    ...historyFindings(reader, "history", leaf, head.messageCount),
    ...frames.flatMap((left) => historyFindings(reader, `frame ${left.frameId}`, left.leaf)),
    ...Object.entries(components).flatMap(([name, hash]) => componentFindings(reader, `component ${name}`, hash)),
    ...journalFindings(reader, sessionId),
  ];
}

export function journalFindings(reader: Pick<ReaderAtOnce, "journal">, sessionId: string): Finding[] {
  return attempt("journal", () => reader.journal(sessionId)).findings;
}

function historyFindings(reader: SessionReader, where: string, leaf: string | null, counted?: number): Finding[] {
  const attachments = new Set<string>();
  const { findings } = attempt(where, () => {
    const messages = readHistory(reader, leaf);
    const count = messages.filter(isConversation).length;
    if (counted !== undefined && counted !== count) throw miscounted(leaf, count, counted);
    for (const { parts } of messages) {
      for (const { source } of attachmentsIn(parts)) if (source.kind === "stored") attachments.add(source.hash);
    }
  });
  return [...findings, ...[...attachments].flatMap((hash) => componentFindings(reader, `attachment ${hash}`, hash))];
}

export function componentFindings(reader: Pick<ReaderAtOnce, "component">, where: string, hash: string): Finding[] {
  return attempt(where, () => {
    if (reader.component(hash) === undefined) throw componentMissing(`Component ${hash}`);
  }).findings;
}
