import {
  orderedNameOf,
  orderKey,
  placeOf,
  type RowName,
  rowKey,
  rowNameOf,
  SESSION_INDEX,
} from "../../../kernel/index.js";
import { childKey, placeOfSession } from "../../records/index.js";
import { attempt, type Finding } from "./finding.js";
import type { RawStore } from "./raw-store.js";
import { waitingFindings } from "./verify-waiting.js";

/** What is wrong with rows, by their session; under "" those of nobody. */
export function rowFindings(state: RawStore): Map<string, Finding[]> {
  const found = waitingFindings(state);
  for (const key of state.keys("rows")) {
    const name = rowNameOf(key);
    const { findings } = attempt(wordsFor(name), () => state.rowAt(key));
    const { session = "" } = name;
    if (findings.length > 0) found.set(session, [...(found.get(session) ?? []), ...findings]);
  }
  return found;
}

function wordsFor({ table, key }: RowName): string {
  return `row ${table} ${key}`;
}

/**
 * What is wrong with the lists that rows and sessions are found by: an entry that is missing, or one that leads to
 * nothing. Where a row or head that cannot be read should stand, nobody knows; that it cannot be read is told elsewhere.
 */
export function listFindings(state: RawStore): Finding[] {
  const { order, children, unreadable } = expectedEntries(state);
  const findings: Finding[] = [];
  const tell = (message: string) => findings.push({ where: "list", code: "store_damaged", message });
  for (const entry of order) if (!state.has("order", entry)) tell(`${subjectOf(entry).words} is missing in its list.`);
  for (const entry of state.keys("order")) {
    const { words, record } = subjectOf(entry);
    if (!order.has(entry) && !unreadable.has(record)) tell(`A list leads to ${words}, which is not there.`);
  }
  for (const entry of children)
    if (!state.has("children", entry)) tell(`Session ${childOf(entry)} is missing among its parent's children.`);
  for (const entry of state.keys("children")) {
    const child = childOf(entry);
    if (!children.has(entry) && !unreadable.has(headRecord(child)))
      tell(`A list of children leads to session ${child}, which is not there.`);
  }
  return findings;
}

/** The record an entry of table `order` leads to. */
function subjectOf(entry: string): { readonly words: string; readonly record: string } {
  const { name } = orderedNameOf(entry);
  if (name.table !== SESSION_INDEX) return { words: wordsFor(name), record: rowRecord(rowKey(name)) };
  const { session = "" } = name;
  return { words: `session ${session}`, record: headRecord(session) };
}

const headRecord = (sessionId: string) => `heads ${sessionId}`;
const rowRecord = (key: string) => `rows ${key}`;

/** Below its parent's name stands the child's. */
function childOf(entry: string): string {
  return rowNameOf(entry).table;
}

/** The entries that lists should have, and the records that cannot say where they should stand. */
function expectedEntries(state: RawStore) {
  const order = new Set<string>();
  const children = new Set<string>();
  const unreadable = new Set<string>();
  for (const sessionId of state.keys("heads")) {
    const { value: stored } = attempt("head", () => state.storedHead(sessionId));
    if (stored === undefined) unreadable.add(headRecord(sessionId));
    else if (state.isPlaced(sessionId)) {
      const place = placeOf(stored);
      order.add(placeOfSession(sessionId, place.order));
      if (place.parent !== undefined) children.add(childKey(place.parent, sessionId));
    }
  }
  for (const key of state.keys("rows")) {
    const { value: row } = attempt("row", () => state.rowAt(key));
    if (row === undefined) unreadable.add(rowRecord(key));
    else if (row.order !== undefined) order.add(orderKey(row, row.order));
  }
  return { order, children, unreadable };
}
