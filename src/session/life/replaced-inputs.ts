import { type PendingInput, TroupeError, turnIdOf, withText } from "../../kernel/index.js";
import type { InputArrival } from "../../plugin/index.js";
import type { ToldBy } from "../calls/index.js";
import { performDirectives } from "../host-services/index.js";
import { addInput, type Session } from "../state/index.js";
import { orRefused } from "../turn/index.js";

interface Waiting {
  readonly arrival: Exclude<InputArrival, "turn">;
  readonly signal: AbortSignal;
}

/**
 * What becomes of the text of an input that is to wait, by the hooks that may replace it: it is written as they leave it.
 * One that they abort does not wait (`input_refused`). What else they return belongs to the turn, whose beginning asks them
 * again; only traces are left at once.
 */
export async function replacedText(session: Session, text: string, { arrival, signal }: Waiting): Promise<string> {
  const { hooks, stored, life, past, id: sessionId } = session;
  if (!hooks.replacesInput) return text;
  const behind = arrival === "enqueue" && (life.unstoredTurn ?? life.unfinished) !== undefined;
  const turnIndex = stored.turnIndex + (behind ? 2 : 1);
  const messageCount = await past.count();
  const turn = { sessionId, turnId: turnIdOf(turnIndex), turnIndex, pluginInput: null, messageCount, arrival };
  const directives = await orRefused("plugin_prepare_turn", "A beforeTurn hook failed", () =>
    hooks.replacedInput(text, (_pluginId, input) => ({ ...turn, input }), { signal }),
  );
  let replaced = text;
  for (const { pluginId, value } of directives) {
    if (value.kind === "replace_input") replaced = value.text;
    if (value.kind === "emit_trace") await performDirectives(session, [{ pluginId, value }]);
    if (value.kind === "abort_turn") {
      const { code, message } = value;
      throw new TroupeError("input_refused", `Plugin ${pluginId} refused the input: ${message}`, {
        details: { pluginId, code },
      });
    }
  }
  return replaced;
}

/**
 * Lets an input wait as the hooks that may replace it leave it: nothing of it is written before. Under a key they are asked
 * about it once. `checkTaking`: throws when the session takes nothing any more by then.
 */
export async function addReplaced(
  session: Session,
  request: ToldBy<"addInput">,
  signal: AbortSignal,
  checkTaking: () => void,
): Promise<PendingInput> {
  const { key, boundary } = request;
  const known = key === undefined ? undefined : session.inputs.pending.find((waiting) => waiting.key === key);
  if (known !== undefined) return known;
  const arrival = boundary === undefined ? "enqueue" : "steer";
  const replaced = await withReplacedText(session, request, { arrival, signal });
  checkTaking();
  return addInput(session, replaced);
}

/** The same input, with its text as the hooks that may replace it leave it. */
export async function withReplacedText<I extends Pick<ToldBy<"addInput">, "text" | "items">>(
  session: Session,
  input: I,
  waiting: Waiting,
): Promise<I> {
  const { items } = input;
  const text = await replacedText(session, input.text, waiting);
  return { ...input, text, items: items && withText(items, text) };
}
