import { COMMITS } from "./commits.js";
import { DELETIONS } from "./deletions.js";
import { JOURNALS, RECEIPTS } from "./journals.js";
import { ROW_PAGES } from "./row-pages.js";
import { ROWS } from "./rows.js";
import { type Cases, type ConformanceCase, type ConformanceStore, casesOver } from "./samples.js";
import { SESSIONS } from "./sessions.js";
import { STORED_TASKS } from "./tasks.js";
import { WAITING } from "./waiting.js";

const CASES: Cases = {
  ...COMMITS,
  ...RECEIPTS,
  ...JOURNALS,
  ...DELETIONS,
  ...ROWS,
  ...ROW_PAGES,
  ...WAITING,
  ...STORED_TASKS,
  ...SESSIONS,
};

/**
 * What every store must do, as cases for any test runner. `open` is called once per case and gives an empty store; its
 * methods may answer at once or with promises.
 *
 * @example
 * for (const { name, run } of storeConformance("my store", openMine)) test(name, run);
 */
export function storeConformance(name: string, open: () => Promise<ConformanceStore>): ConformanceCase[] {
  return casesOver(name, CASES, open);
}
