import { readFile } from "node:fs/promises";
import type { Reply } from "../../model/ai-sdk/wire-server.js";
import { eventStream } from "./event-stream.js";

/** Providers' protocols; `unstored` asks OpenAI to keep nothing between requests. */
export const WIRES = [
  "openai-chat",
  "openai-compatible",
  "openai-responses",
  "openai-responses-unstored",
  "anthropic",
  "gemini",
  "bedrock",
] as const;
export type Wire = (typeof WIRES)[number];

/** What a wire's model is called with. */
export function optionsOf(wire: Wire) {
  switch (wire) {
    case "anthropic":
      return { providerOptions: { anthropic: { thinking: { type: "enabled", budgetTokens: 2048 } } } };
    case "openai-responses-unstored":
      return { providerOptions: { openai: { store: false, include: ["reasoning.encrypted_content"] } } };
    default:
      return {};
  }
}

/**
 * What a provider answers one request with: the events of a stream, or an error's body. `hold` leaves the stream open
 * behind its last event; `cut` destroys the connection there.
 */
interface Recorded {
  readonly status?: number;
  readonly headers?: Readonly<Record<string, string>>;
  readonly events?: readonly object[];
  readonly body?: object;
  readonly hold?: true;
  readonly cut?: true;
}

export interface Recording {
  readonly replies: [Reply, ...Reply[]];
  /** The connection is to be destroyed when a response is held. */
  readonly cuts: boolean;
  /** Did the provider say this text? */
  readonly isRecorded: (text: string) => boolean;
}

/** The answers in `wires/<wire>/<conversation>.json`, one for each request, as bytes of that wire. */
export async function recording(wire: Wire, conversation: string): Promise<Recording> {
  const file = new URL(`wires/${wire}/${conversation}.json`, import.meta.url);
  const text = await readFile(file, "utf8");
  const recorded = JSON.parse(text) as readonly Recorded[];
  const replies = recorded.map(
    ({ status, headers, events, body, hold, cut }): Reply => ({
      ...(status !== undefined && { status }),
      headers: { ...(wire === "bedrock" && { "content-type": "application/vnd.amazon.eventstream" }), ...headers },
      body: events === undefined ? JSON.stringify(body) : encoded(wire, events, { ends: !hold && !cut }),
      hold: hold === true || cut === true,
    }),
  );
  return {
    replies: replies as Recording["replies"], // a recording is never empty
    cuts: recorded.some(({ cut }) => cut),
    isRecorded: (said) => text.includes(JSON.stringify(said)),
  };
}

function encoded(wire: Wire, events: readonly object[], { ends }: { readonly ends: boolean }): string | Uint8Array {
  switch (wire) {
    case "bedrock":
      return eventStream(events);
    case "anthropic":
      return events.map((event) => `event: ${(event as { type: string }).type}\n${data(event)}`).join("");
    case "openai-responses":
    case "openai-responses-unstored":
    case "gemini":
      return events.map(data).join("");
    case "openai-chat":
    case "openai-compatible":
      return events.map(data).join("") + (ends ? "data: [DONE]\n\n" : "");
  }
}

function data(event: object): string {
  return `data: ${JSON.stringify(event)}\n\n`;
}
