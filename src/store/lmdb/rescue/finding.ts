import { messageOf, TroupeError } from "../../../kernel/index.js";

/** Something that cannot be read. */
export interface Finding {
  /**
   * `file`, `head`, `history`, `frame <name>`, `component <name>`, `attachment <hash>`, `journal`, `row <table> <key>` or
   * `list`.
   */
  readonly where: string;
  /** As it would be thrown: `history_damaged`, `component_missing`, … */
  readonly code: string;
  readonly message: string;
}

/** What it gives, or what goes wrong with it. */
export function attempt<T>(where: string, run: () => T): { readonly value?: T; readonly findings: Finding[] } {
  try {
    return { value: run(), findings: [] };
  } catch (error) {
    const code = error instanceof TroupeError ? error.code : "store_damaged";
    return { findings: [{ where, code, message: messageOf(error) }] };
  }
}
