import type { IncomingMessage, ServerResponse } from "node:http";
import { TroupeError } from "troupe";

/** What a request is answered with when it cannot be done. */
export class Refused extends Error {
  readonly status: number;
  readonly code: string;

  constructor(status: number, code: string, message: string) {
    super(message);
    this.status = status;
    this.code = code;
  }
}

const MOST_BYTES = 64 * 1024;

/** The JSON object of a request's body; an empty body is an empty object. */
export async function bodyOf(request: IncomingMessage): Promise<Readonly<Record<string, unknown>>> {
  const pieces: Buffer[] = [];
  let bytes = 0;
  for await (const piece of request as AsyncIterable<Buffer>) {
    bytes += piece.length;
    if (bytes > MOST_BYTES) throw new Refused(413, "too_large", `A body has up to ${MOST_BYTES} bytes.`);
    pieces.push(piece);
  }
  if (bytes === 0) return {};
  try {
    const body: unknown = JSON.parse(Buffer.concat(pieces).toString("utf8"));
    if (typeof body === "object" && body !== null && !Array.isArray(body)) return body as Record<string, unknown>;
  } catch {
    // Falls through to the same answer.
  }
  throw new Refused(400, "no_json", "The body must be an object in JSON.");
}

/** The text of a field; undefined when there is none. */
export function textIn(body: Readonly<Record<string, unknown>>, field: string): string | undefined {
  const value = body[field];
  if (value === undefined || typeof value === "string") return value;
  throw new Refused(400, "no_text", `"${field}" must be a text.`);
}

export function answer(response: ServerResponse, status: number, body: unknown): void {
  response.writeHead(status, { "content-type": "application/json" }).end(`${JSON.stringify(body)}\n`);
}

/** Codes of the runtime that are the asker's own doing; anything else is ours. */
const STATUS: Readonly<Record<string, number>> = {
  answer_unusable: 400,
  completion_unknown: 404,
  invalid_turn_input: 400,
  mailbox_full: 429,
  turn_key_conflict: 409,
};

export function refuse(response: ServerResponse, error: unknown): void {
  if (response.headersSent) {
    response.end();
    return;
  }
  const { status, code, message } = refusalOf(error);
  answer(response, status, { code, message });
}

function refusalOf(error: unknown): Pick<Refused, "status" | "code" | "message"> {
  if (error instanceof Refused) return error;
  if (error instanceof TroupeError) {
    const { code, message } = error;
    return { status: STATUS[code] ?? (error.retryable ? 503 : 500), code, message };
  }
  console.error(error);
  return { status: 500, code: "internal", message: "Something went wrong here." };
}

/** One event of a stream. `id` is what a browser sends back as `Last-Event-ID` when it connects again. */
export interface ServerSentEvent {
  readonly id: string;
  readonly event: string;
  readonly data: unknown;
}

const KEEP_ALIVE_MS = 15_000;

/** Sends events until there are no more or the reader is gone; one who reads slowly is waited for. */
export async function sendEvents(response: ServerResponse, events: AsyncIterable<ServerSentEvent>): Promise<void> {
  response.writeHead(200, { "content-type": "text/event-stream", "cache-control": "no-store" });
  response.flushHeaders();
  const keepAlive = setInterval(() => response.write(":\n\n"), KEEP_ALIVE_MS);
  try {
    for await (const { id, event, data } of events) {
      const taken = response.write(`id: ${id}\nevent: ${event}\ndata: ${JSON.stringify(data)}\n\n`);
      if (!taken) await drained(response);
    }
  } finally {
    clearInterval(keepAlive);
    response.end();
  }
}

function drained(response: ServerResponse): Promise<void> {
  return new Promise((resolve) => {
    const done = () => {
      response.off("drain", done).off("close", done);
      resolve();
    };
    response.on("drain", done).on("close", done);
  });
}
