import { cursorInvalid, type FieldsOf, sentence, TroupeError, unknownField } from "../../kernel/index.js";
import type { ArgumentOf } from "../../session/index.js";

/** How a session is watched. */
export interface ObserveOptions {
  /**
   * Where it begins. `"now"` (default): with what happens from now on. `"turn"`: with the beginning of the turn that runs,
   * as far as it is kept; with the end of the last one when none does and that is still known. A cursor: behind the event
   * it came with.
   */
  readonly from?: "now" | "turn" | (string & {}) | undefined;
  /** The same as `from` with a cursor. */
  readonly cursor?: string | undefined;
  /** Ends the watching, and the loop with it, when it aborts. */
  readonly signal?: AbortSignal | undefined;
  /** Also what happens in turns that this session's plugins start in other sessions, and theirs. Default: not. */
  readonly children?: boolean | undefined;
}

/** Where a reader begins, as its session's worker is told. */
export type ObserveStart = ArgumentOf<"observe">["from"];

const FIELDS: FieldsOf<ObserveOptions> = { from: true, cursor: true, signal: true, children: true };

/** Checked: `invalid_observe` says what is wrong with them. */
export function readObserveOptions(
  sessionId: string,
  options: ObserveOptions,
): { readonly from: ObserveStart; readonly signal?: AbortSignal; readonly children: boolean } {
  if (typeof options !== "object" || options === null) throw invalid("its options are an object");
  const stranger = unknownField(options, FIELDS, "observe");
  if (stranger !== undefined) throw invalid(stranger);
  const { cursor, from = cursor ?? "now", signal, children = false } = options;
  if (cursor !== undefined && options.from !== undefined)
    throw invalid("from and cursor both say where it begins; give one of them");
  if (typeof from !== "string") throw cursorInvalid(sessionId);
  if (signal !== undefined && !(signal instanceof AbortSignal)) throw invalid("signal must be an AbortSignal");
  if (typeof children !== "boolean") throw invalid("children is true or false");
  const isWord = cursor === undefined && (from === "now" || from === "turn");
  return { from: isWord ? from : { cursor: from }, children, ...(signal && { signal }) };
}

function invalid(why: string): TroupeError {
  return new TroupeError("invalid_observe", `The session cannot be watched: ${sentence(why)}`);
}
