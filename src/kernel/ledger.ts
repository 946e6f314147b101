import { addUsage, NO_USAGE, subtractUsage, type Usage } from "./usage.js";

/** Usage by its source. */
export type Ledger = Readonly<Record<string, Usage>>;

/** Both together; `a` itself when `b` has nothing. */
export function addLedgers(a: Ledger, b: Ledger): Ledger {
  const added = Object.keys(b);
  if (added.length === 0) return a;
  const sum: Record<string, Usage> = { ...a };
  for (const source of added) sum[source] = addUsage(sum[source] ?? NO_USAGE, b[source] as Usage);
  return sum;
}

/** What `all` has beyond `counted`, which is an earlier state of it. */
export function ledgerSince(all: Ledger, counted: Ledger): Ledger {
  if (all === counted) return {};
  const rest: Record<string, Usage> = {};
  for (const [source, usage] of Object.entries(all)) {
    const done = counted[source];
    if (done === undefined) rest[source] = usage;
    else if (usage !== done) rest[source] = subtractUsage(usage, done);
  }
  return rest;
}
