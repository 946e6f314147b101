import { crc32 } from "node:zlib";

/**
 * Events in AWS's binary framing, as Bedrock's ConverseStream sends them: each event is `{ name: body }`, a name that ends
 * in `Exception` an exception.
 */
export function eventStream(events: readonly object[]): Buffer {
  return Buffer.concat(events.map((event) => frame(Object.entries(event)[0] as [string, unknown]))); // one name each
}

/** Lengths of frame and headers, a checksum of both, the headers, the body, a checksum of it all. */
function frame([name, body]: [string, unknown]): Buffer {
  const isException = name.endsWith("Exception");
  const headers = Buffer.concat([
    header(":message-type", isException ? "exception" : "event"),
    header(isException ? ":exception-type" : ":event-type", name),
    header(":content-type", "application/json"),
  ]);
  const payload = Buffer.from(JSON.stringify(body));
  const lengths = Buffer.concat([uint32(16 + headers.length + payload.length), uint32(headers.length)]);
  const start = Buffer.concat([lengths, uint32(crc32(lengths)), headers, payload]);
  return Buffer.concat([start, uint32(crc32(start))]);
}

/** The type of a header whose value is a text. */
const TEXT = 7;

function header(name: string, value: string): Buffer {
  const length = Buffer.alloc(2);
  length.writeUInt16BE(Buffer.byteLength(value));
  return Buffer.concat([
    Buffer.from([name.length]),
    Buffer.from(name),
    Buffer.from([TEXT]),
    length,
    Buffer.from(value),
  ]);
}

function uint32(value: number): Buffer {
  const bytes = Buffer.alloc(4);
  bytes.writeUInt32BE(value);
  return bytes;
}
