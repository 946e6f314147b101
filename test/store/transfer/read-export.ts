import { type ExportedSession, readingExport } from "../../../src/store/transfer/index.js";

/** Reads an exported session in one go. */
export function readExport(bytes: Uint8Array): ExportedSession {
  const reading = readingExport(bytes);
  for (;;) {
    const { done, value } = reading.next();
    if (done) return value;
  }
}
