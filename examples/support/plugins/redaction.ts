import { definePlugin, replaceInput } from "troupe/plugin";

/** A card's number, however it is grouped, and an address of electronic mail. */
const PRIVATE = /\d(?:[ -]?\d){12,18}|[\w.+-]+@[\w-]+(?:\.[\w-]+)+/g;
/** An end of text that the next chunk may turn into one of these, or into more of it. */
const UNDECIDED = /(?:\d[\d -]*|[\w.+-]+(?:@[\w.-]*)?)$/;

const masked = (text: string) => text.replace(PRIVATE, "[private]");

/** Keeps private numbers and addresses from the model and from whatever is stored, and from whoever reads the answer. */
export default definePlugin({
  id: "support.redaction",
  version: "1.0.0",
  state: () => ({ held: "" }),
  hooks: {
    // In: declared as `replacesInput`, so that what the customer wrote is nowhere written down before this hook has seen it.
    beforeTurn: {
      replacesInput: true,
      run({ input }) {
        const text = masked(input);
        return text === input ? undefined : replaceInput(text);
      },
    },
    // Out, while it streams: what may still become private is held back until it is decided, or until nothing follows.
    assistantStream: {
      final: true,
      run({ chunk, final, state }) {
        const text = state.held + chunk;
        const cut = final ? text.length : (UNDECIDED.exec(text)?.index ?? text.length);
        state.held = text.slice(cut);
        return masked(text.slice(0, cut));
      },
    },
    streamFinished({ state }) {
      state.held = "";
    },
    // Out, of models that answer whole instead of streaming.
    proseProjector: ({ text }) => masked(text),
  },
});
