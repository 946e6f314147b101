import { definePlugin } from "troupe/plugin";
import { z } from "zod";

/** A card number, however it is grouped, and an API key. */
const SECRET = /\d(?:[ -]?\d){12,}|\bsk-[\w-]{16,}/g;
/** An end of text that the next chunk may turn into a secret, or into more of one. */
const UNDECIDED = /(?:\d[\d -]*|\bs(?:k(?:-[\w-]*)?)?)$/;

/**
 * Masks secrets in what the model says, also when they arrive in pieces.
 *
 * How a text is cut into chunks means nothing: providers cut it anywhere, and chunks that arrive while a hook is at
 * work are joined before it is called again. So the hook holds back what could still become a secret and decides when
 * it has seen what follows, or that nothing does: with `final: true`.
 *
 * Reasoning does not pass stream hooks, and the arguments of tool calls are left alone: the tool needs them.
 */
export default definePlugin({
  id: "example.redaction",
  version: "1.0.0",
  options: z.object({ mask: z.string().default("[redacted]") }),
  state: () => ({ heldBack: "" }),
  hooks: {
    assistantStream: {
      final: true,
      run({ chunk, final, state, options }) {
        const text = state.heldBack + chunk;
        const cut = final ? text.length : (UNDECIDED.exec(text)?.index ?? text.length);
        state.heldBack = text.slice(cut);
        const safe = text.slice(0, cut);
        const masked = safe.replace(SECRET, options.mask);
        return { chunk: masked, events: masked === safe ? [] : [{ name: "redacted" }] };
      },
    },
    // However the stream ended, the next one starts afresh, and no piece of a secret is stored with the turn.
    streamFinished({ state }) {
      state.heldBack = "";
    },
  },
});
