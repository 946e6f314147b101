import { definePlugin } from "troupe/plugin";
import { z } from "zod";

/** "Remember that …", up to the end of the sentence. */
const STATED = /\bremember(?: that)?:?\s+([^.!?\n]+)/gi;

/**
 * Remembers what the user asks it to, tells the model in every later turn, and brings the tools to look things up and
 * to forget them. A fork knows what its parent knew; what it learns afterwards is its own.
 */
export default definePlugin({
  id: "example.memory",
  version: "1.0.0",
  options: z.object({ max: z.number().int().min(1).default(50) }),
  state: (): { facts: string[] } => ({ facts: [] }),
  hooks: {
    beforeTurn({ input, state, options }) {
      for (const [, fact = ""] of input.matchAll(STATED)) {
        // A fact that is said again becomes the newest; beyond the limit the oldest goes.
        state.facts = [...state.facts.filter((known) => known !== fact.trim()), fact.trim()].slice(-options.max);
      }
    },
    promptContributor({ state }) {
      if (state.facts.length === 0) return;
      const content = state.facts.map((fact) => `- ${fact}`).join("\n");
      return { slot: "runtime_context", title: "What the user asked you to remember", content };
    },
  },
  tools: {
    recall: {
      description: "Facts the user asked to remember that contain some text; all of them without one.",
      inputSchema: z.object({ about: z.string().default("") }),
      execute: ({ about }, { state }) => state.facts.filter((fact) => contains(fact, about)),
    },
    forget: {
      description: "Forgets every remembered fact that contains this text.",
      inputSchema: z.object({ about: z.string().min(1) }),
      execute({ about }, { state }) {
        const forgotten = state.facts.filter((fact) => contains(fact, about));
        state.facts = state.facts.filter((fact) => !forgotten.includes(fact));
        return { forgotten };
      },
    },
  },
});

function contains(fact: string, text: string): boolean {
  return fact.toLowerCase().includes(text.toLowerCase());
}
