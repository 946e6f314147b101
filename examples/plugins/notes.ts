import { definePlugin, queueTurn } from "troupe/plugin";
import { z } from "zod";

interface Note {
  readonly text: string;
  readonly tag: string;
}

/**
 * Notes of a session, kept by the host and not by the model: one operation of each kind. The host imports this module's
 * type and calls `session.plugin<typeof notes>("example.notes").notes.add({ text: "milk" })`.
 */
export default definePlugin({
  id: "example.notes",
  version: "1.0.0",
  state: (): { notes: Note[] } => ({ notes: [] }),
  queries: {
    "notes.list": {
      description: "The notes with a tag, or all of them.",
      input: z.object({ tag: z.string().optional() }),
      run: ({ tag }, { state }) => state.notes.filter((note) => tag === undefined || note.tag === tag),
    },
  },
  commands: {
    "notes.add": {
      description: "Adds a note; with `tell` the model is told of it in a turn of its own.",
      input: z.object({ text: z.string().min(1), tag: z.string().default("none"), tell: z.boolean().default(false) }),
      run: ({ text, tag, tell }, { state }) => ({
        output: { count: state.notes.push({ text, tag }) },
        events: [{ name: "noted", payload: text }],
        directives: tell ? [queueTurn(`Noted: ${text}`)] : [],
      }),
    },
  },
  tasks: {
    "notes.sum_up": {
      description: "Has the model make one note of all of them, unless the caller gives up meanwhile.",
      input: z.object({}),
      async run(_args, { state, host, signal }) {
        const messages = [{ role: "user" as const, text: state.notes.map(({ text }) => text).join("\n") }];
        const { text } = await host.directCompletion({ system: "Sum up.", messages }, "notes");
        if (!signal.aborted) state.notes = [{ text, tag: "summary" }];
        return { output: text };
      },
    },
  },
  actions: {
    "notes.count": {
      description: "How many notes there are.",
      input: z.object({}),
      run: (_args, { state }) => state.notes.length,
    },
  },
});
