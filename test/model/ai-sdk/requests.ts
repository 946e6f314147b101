import type { Message, ModelEvent, ModelRequest } from "../../../src/kernel/index.js";

/** The input of a turn, as the session records it. */
export function input(text: string, turnId = "t1"): Message {
  return { id: `in-${turnId}`, role: "user", parts: [{ type: "text", text }], origin: { kind: "turn_input", turnId } };
}

export function requestOf(overrides: Partial<ModelRequest> = {}): ModelRequest {
  return {
    sessionId: "s1",
    turnId: "t1",
    step: 0,
    system: "",
    history: [],
    turn: [input("hello")],
    tools: [],
    ...overrides,
  };
}

/** A signal nobody aborts. */
export function calm(): AbortSignal {
  return new AbortController().signal;
}

export async function collect(stream: AsyncIterable<ModelEvent>): Promise<ModelEvent[]> {
  const events: ModelEvent[] = [];
  for await (const event of stream) events.push(event);
  return events;
}

/** Everything streamed before the failure, and the failure. Fails the test when there is none. */
export async function collectFailure(
  stream: AsyncIterable<ModelEvent>,
): Promise<{ readonly events: ModelEvent[]; readonly error: unknown }> {
  const events: ModelEvent[] = [];
  try {
    for await (const event of stream) events.push(event);
  } catch (error) {
    return { events, error };
  }
  throw new Error(`Expected the stream to fail, but it ended after ${JSON.stringify(events)}`);
}

export function textIn(events: readonly ModelEvent[]): string {
  return events.map((event) => (event.type === "text_delta" ? event.text : "")).join("");
}
