import { type Head, isRecord } from "../../kernel/index.js";

const isText = (value: unknown): boolean => typeof value === "string" && value !== "";
const isNode = (value: unknown): boolean => value === null || isText(value);
const isCount = (value: unknown): boolean => Number.isSafeInteger(value) && (value as number) >= 0;
const isAbsentOr = (fits: (value: unknown) => boolean) => (value: unknown) => value === undefined || fits(value);

/** What each field of a head must be. Tenant and metadata have rules of their own. */
const FIELDS: { readonly [F in keyof Head]-?: (value: unknown) => boolean } = {
  sessionId: isText,
  revision: isCount,
  leaf: isNode,
  turnIndex: isCount,
  messageCount: isAbsentOr(isCount),
  usage: isUsage,
  components: (value) => isRecord(value) && Object.values(value).every(isText),
  operation: isText,
  lastCall: isAbsentOr(isText),
  tenant: () => true,
  agent: isAbsentOr(isText),
  plugins: isAbsentOr((value) => Array.isArray(value) && value.every(isText)),
  metadata: () => true,
  parent: isAbsentOr((value) => isRecord(value) && isText(value.sessionId) && isNode(value.leaf)),
  family: isAbsentOr(isText),
  frameId: isAbsentOr(isText),
  frames: isAbsentOr((value) => Array.isArray(value) && value.every(isFrame)),
  ledger: isAbsentOr(isLedger),
};

/**
 * Which field of a head from outside cannot be read; undefined when it is a head. What is written from it is opened like
 * any session, by code that believes its types.
 */
export function wrongFieldOf(head: unknown): string | undefined {
  if (!isRecord(head)) return "the head itself";
  return Object.entries(FIELDS).find(([name, fits]) => !fits(head[name]))?.[0];
}

function isFrame(frame: unknown): boolean {
  return isRecord(frame) && isText(frame.frameId) && typeof frame.reason === "string" && isNode(frame.leaf);
}

/** Older releases kept it by source. */
function isLedger(ledger: unknown): boolean {
  if (Array.isArray(ledger)) return ledger.every(isEntry);
  return isRecord(ledger) && Object.values(ledger).every(isUsage);
}

function isEntry(entry: unknown): boolean {
  return isRecord(entry) && isText(entry.source) && isText(entry.model) && isUsage(entry.usage);
}

/** Older releases counted less. */
function isUsage(usage: unknown): boolean {
  return isRecord(usage) && Object.values(usage).every(isCount);
}
