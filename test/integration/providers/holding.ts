import type { IncomingHttpHeaders } from "node:http";
import { startWireServer, type WireServer } from "../../model/ai-sdk/wire-server.js";
import type { Conversation } from "./conversations.js";
import { recording, type Wire } from "./wires.js";

export const SYSTEM = "Be brief.";

/** Somebody who talks to a model. `onText` is told, with what stops the first turn, when text of that turn has come. */
export interface Talker {
  hold(conversation: Conversation, onText: (stop: () => void) => void): Promise<void>;
  close(): Promise<void>;
}

/** A request as the provider got it. */
export interface Sent {
  readonly path: string | undefined;
  readonly headers: IncomingHttpHeaders;
  readonly body: unknown;
}

/** Headers that `fetch` sets, and the one that says which program asks. */
const TRANSPORT: ReadonlySet<string> = new Set([
  ...["host", "connection", "content-length", "accept", "accept-language", "accept-encoding", "sec-fetch-mode"],
  "user-agent",
]);

/** A talker with a server of its own. */
export interface Holding {
  /** The requests a provider gets while the conversation is held. */
  requestsOf(conversation: Conversation): Promise<readonly Sent[]>;
  close(): Promise<void>;
}

export async function startHolding(wire: Wire, talkTo: (server: WireServer) => Promise<Talker>): Promise<Holding> {
  const server = await startWireServer({ status: 500, body: "No conversation has begun" });
  const talker = await talkTo(server);
  return {
    async requestsOf(conversation) {
      const { replies, cuts, isRecorded } = await recording(wire, conversation.name);
      server.script(...replies);
      // Not before text has come: of a connection that breaks, a client may drop what it has not read yet.
      await talker.hold(conversation, (stop) => void server.held.then(cuts ? server.cut : stop));
      if (server.requests.length !== replies.length)
        throw new Error(`There were ${server.requests.length} requests for ${replies.length} recorded answers.`);
      const sent = server.requests.map((body, index): Sent => {
        const headers = Object.entries(server.headers[index] ?? {}).filter(([name]) => !TRANSPORT.has(name));
        return { path: server.paths[index], headers: Object.fromEntries(headers), body };
      });
      return JSON.parse(JSON.stringify(sent, conversation.idsAreMadeUp ? numbered(isRecorded) : undefined));
    },
    async close() {
      await talker.close();
      await server[Symbol.asyncDispose]();
    },
  };
}

/** Provider packages make up an id for a call that came without one, another in every run: these are counted instead. */
function numbered(isRecorded: (text: string) => boolean): (key: string, value: unknown) => unknown {
  const made = new Map<string, string>();
  return (key, value) => {
    if (key !== "id" || typeof value !== "string" || isRecorded(value)) return value;
    if (!made.has(value)) made.set(value, `made up ${made.size + 1}`);
    return made.get(value);
  };
}
