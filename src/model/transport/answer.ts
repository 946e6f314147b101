import type { IncomingMessage } from "node:http";
import { pipeline, type Readable } from "node:stream";
import { constants, createBrotliDecompress, createGunzip, createInflate } from "node:zlib";

/** Bytes that wait for a reader before the connection is told to wait. */
const MAX_WAITING = 64 * 1024;
/** Statuses whose answers have no body; `Response` refuses one. */
const WITHOUT_BODY = [101, 204, 205, 304];

/** What came as an answer, as `fetch` gives it: its body is read as it comes. */
export function answerOf(message: IncomingMessage, url: URL, signal: AbortSignal | undefined): Response {
  const { statusCode: status = 200, statusMessage: statusText = "", rawHeaders } = message;
  const headers = new Headers();
  for (let at = 0; at + 1 < rawHeaders.length; at += 2)
    headers.append(rawHeaders[at] as string, rawHeaders[at + 1] as string);
  const isEmpty = WITHOUT_BODY.includes(status);
  if (isEmpty) discard(message);
  const response = new Response(isEmpty ? null : bodyStream(message, signal), { status, statusText, headers });
  Object.defineProperty(response, "url", { value: url.href });
  return response;
}

/** Reads a body for nobody, so that its connection can be used again; whether it breaks concerns nobody either. */
export function discard(message: IncomingMessage): void {
  message.on("error", () => {}).resume();
}

function bodyStream(message: IncomingMessage, signal: AbortSignal | undefined): ReadableStream<Uint8Array> {
  const body = decoded(message);
  let over = false;
  const end = () => {
    over = true;
    signal?.removeEventListener("abort", abort);
  };
  let abort = () => {};
  return new ReadableStream<Uint8Array>(
    {
      start(controller) {
        abort = () => {
          if (over) return;
          end();
          controller.error(signal?.reason);
          message.destroy();
        };
        body.on("data", (chunk: Uint8Array) => {
          if (over) return;
          controller.enqueue(chunk);
          if ((controller.desiredSize ?? 0) <= 0) body.pause();
        });
        body.on("end", () => {
          if (over) return;
          end();
          controller.close();
        });
        body.on("error", (cause) => {
          if (over) return;
          end();
          // As `fetch` says that an answer broke off.
          controller.error(new TypeError("terminated", { cause }));
        });
        if (signal?.aborted) abort();
        else signal?.addEventListener("abort", abort, { once: true });
      },
      pull() {
        body.resume();
      },
      cancel() {
        end();
        message.destroy();
      },
    },
    { highWaterMark: MAX_WAITING, size: (chunk) => chunk.byteLength },
  );
}

/** Nothing is asked to be compressed, because that costs more than it saves for small pieces; what is, is understood. */
function decoded(message: IncomingMessage): Readable {
  const decoder = decoderOf(message.headers["content-encoding"]?.trim().toLowerCase());
  if (decoder === undefined) return message;
  // An error of the message destroys the decoder with it, and is the decoder's error then.
  return pipeline(message, decoder, () => {});
}

function decoderOf(encoding: string | undefined) {
  // What has come is given out, whether or not it fills a block.
  const flush = { flush: constants.Z_SYNC_FLUSH, finishFlush: constants.Z_SYNC_FLUSH };
  switch (encoding) {
    case "gzip":
    case "x-gzip":
      return createGunzip(flush);
    case "deflate":
      return createInflate(flush);
    case "br":
      return createBrotliDecompress({ flush: constants.BROTLI_OPERATION_FLUSH });
    default:
      return undefined;
  }
}
