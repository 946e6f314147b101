import type { Activity, Message, Observed, Session, Turn } from "troupe";
import type { ServerSentEvent } from "./http.js";

/** Begins a turn, and resolves with its id once it is let in; rejects when it is refused. The turn goes on by itself. */
export async function begin(turn: Turn): Promise<string> {
  for await (const activity of turn) {
    if (activity.type === "turn_started") return activity.turnId;
    // Asked before under the same key, and answered.
    if (activity.type === "turn_finished") return activity.result.turnId;
  }
  return (await turn).turnId;
}

/** What a page shows of a chat that it opens, at any moment. */
export async function pageOf(session: Session) {
  const { running } = await session.view();
  const messages = (await session.messages()).flatMap(shown);
  if (running === null) return { messages, running };
  // Not among the messages yet: what was asked, and what was answered so far.
  const { turnId, input, text, pending } = running;
  return { messages, running: { turn: turnId, question: input, text, waiting: pending.length } };
}

/** Only what was said: tool calls and their results are not for the customer. */
function shown({ role, parts, at, interrupted }: Message) {
  const text = parts.map((part) => (part.type === "text" ? part.text : "")).join("");
  if (text === "" || (role !== "user" && role !== "assistant")) return [];
  return [{ role, text, at, ...(interrupted && { interrupted }) }];
}

/** What happens in a chat, from the beginning of the turn that runs, or behind what the page saw last. */
export async function eventsOf(
  session: Session,
  { behind, signal }: { readonly behind: string | undefined; readonly signal: AbortSignal },
): Promise<AsyncIterable<ServerSentEvent>> {
  const observed = session.observe({ from: behind ?? "turn", signal });
  const first = observed.next();
  await session.view(); // answered: so the watching has begun, and misses nothing that is asked from now on
  return sentOf(first, observed);
}

async function* sentOf(
  first: Promise<IteratorResult<Observed>>,
  rest: AsyncIterator<Observed>,
): AsyncGenerator<ServerSentEvent> {
  for (let next = await first; !next.done; next = await rest.next()) {
    const { cursor, event } = next.value;
    const told = toldOf(event);
    if (told !== undefined) yield { id: cursor, ...told };
  }
}

function toldOf(event: Observed["event"]): Omit<ServerSentEvent, "id"> | undefined {
  switch (event.type) {
    case "activity":
      return toldOfActivity(event.activity, event.turnId);
    case "refused":
      return { event: "ended", data: { turn: event.turnId, outcome: "refused", code: event.code } };
    case "gap":
      // Something was missed: the page asks for the chat anew.
      return { event: "reload", data: {} };
    case "committed":
      return undefined;
  }
}

function toldOfActivity(activity: Activity, turn: string): Omit<ServerSentEvent, "id"> | undefined {
  switch (activity.type) {
    case "turn_started":
      return { event: "begun", data: { turn } };
    case "text_delta":
      return { event: "text", data: { turn, text: activity.text } };
    case "tool_call_pending":
      return { event: "waiting", data: { turn, for: activity.toolName } };
    case "turn_finished": {
      const { outcome } = activity.result;
      return { event: "ended", data: { turn, outcome: outcome.type === "stopped" ? outcome.code : outcome.type } };
    }
    default:
      return undefined;
  }
}
