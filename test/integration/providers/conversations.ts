import type { Wire } from "./wires.js";

/** What a user says, turn by turn. What the model says to it stands in `wires/`, for each wire in its own words. */
export interface Conversation {
  readonly name: string;
  readonly asks: readonly [string, ...string[]];
  readonly wires: readonly Wire[];
  /** The first thing the user says comes with an image. */
  readonly attaches?: true;
  /** Two tools are called at once, and the first call is the last to end. */
  readonly crosses?: true;
  /** The provider gave calls no ids. */
  readonly idsAreMadeUp?: true;
  /** The model is given its provider's own tools. */
  readonly withProviderTools?: true;
}

const STORED: readonly Wire[] = [
  "openai-chat",
  "openai-compatible",
  "openai-responses",
  "anthropic",
  "gemini",
  "bedrock",
];

export const CONVERSATIONS: readonly Conversation[] = [
  { name: "text", asks: ["Hi", "And again", "Once more"], wires: STORED },
  { name: "attachments", asks: ["What is this?", "And now?", "Thanks"], wires: STORED, attaches: true },
  {
    name: "reasoning",
    asks: ["What is the answer?", "And the next?", "And then?"],
    wires: ["openai-compatible", "openai-responses", "openai-responses-unstored", "anthropic", "gemini", "bedrock"],
  },
  {
    name: "tools",
    asks: ["Weather and time in Oslo?", "Thanks"],
    wires: [...STORED, "openai-responses-unstored"],
    crosses: true,
  },
  { name: "images", asks: ["What is on the screen?", "And now?"], wires: STORED },
  { name: "failures", asks: ["Weather in Oslo?", "Why?"], wires: STORED },
  {
    name: "provider-tools",
    asks: ["Search the weather in Oslo, and tell the time", "Thanks"],
    wires: ["openai-responses", "openai-responses-unstored", "anthropic", "gemini"],
    withProviderTools: true,
    // Gemini's code execution has none.
    idsAreMadeUp: true,
  },
  { name: "files", asks: ["Draw a dot", "Which colour?", "Thanks"], wires: ["gemini"] },
  // The second answer is held until the turn is cancelled.
  { name: "cancelled", asks: ["Weather in Oslo?", "Well?"], wires: STORED },
  // The turn is cancelled while one of its two tools runs.
  { name: "cancelled-tools", asks: ["What time is it?", "Well?", "Thanks"], wires: STORED },
  // Two requests are refused, each is sent again.
  { name: "retried", asks: ["Weather in Oslo?"], wires: STORED },
  // The first answer breaks off, and its turn fails.
  { name: "broken", asks: ["Weather in Oslo?", "Well?", "Thanks"], wires: STORED },
  { name: "repeated-ids", asks: ["Weather and time in Oslo?"], wires: ["openai-chat"] },
  { name: "no-ids", asks: ["Weather and time in Oslo?", "Thanks"], wires: ["gemini"], idsAreMadeUp: true },
];
