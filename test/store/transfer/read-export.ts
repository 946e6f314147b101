import { type ExportedSession, readingExport } from "../../../src/store/transfer/index.js";

/** Reads an exported session in one go. */
export function readExport(bytes: Uint8Array): ExportedSession {
  const reading = readingExport(bytes);
  for (;;) {
    const { done, value } = reading.next();
    if (done) return value;
  }
}

/** The pieces of an exported session, as one. */
export async function gathered(pieces: AsyncIterable<Uint8Array>): Promise<Buffer> {
  const kept: Uint8Array[] = [];
  for await (const piece of pieces) kept.push(piece);
  return Buffer.concat(kept);
}
