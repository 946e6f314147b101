import { messageOf, TroupeError, type TroupeErrorOptions } from "../../../kernel/index.js";

export function storeOpenFailed(path: string, why: string, cause?: unknown): TroupeError {
  return new TroupeError("store_open_failed", `The store at ${path} cannot be opened: ${why}.`, {
    details: { path },
    cause,
  });
}

/** What was thrown while a store was opened: an error of Troupe's says it already. */
export function unlessTold(path: string, thrown: unknown, cure?: string): TroupeError {
  if (thrown instanceof TroupeError) return thrown;
  return storeOpenFailed(
    path,
    cure === undefined ? messageOf(thrown) : `${messageOf(thrown)}. ${cure}`.slice(0, -1),
    thrown,
  );
}

export function damagedStore(what: string, options: TroupeErrorOptions): TroupeError {
  const message = `${what}. Restore it from a backup, repair it, or choose another path.`;
  return new TroupeError("store_damaged", message, options);
}
