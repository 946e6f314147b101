import { canonicalJson, type JournalEntry, type Json, keptEnvelope } from "../../kernel/index.js";
import { contentHash } from "../../wire/index.js";

/**
 * What a journal row says about the request it answers: the hash of its canonical form, and as much of it as is kept to
 * tell how another request differs.
 *
 * @example
 * const { hash, envelope } = sealEnvelope({ kind: "tool_attempt", toolName: "weather", args: { city: "Oslo" } });
 */
export function sealEnvelope(request: Json): Pick<JournalEntry, "hash" | "envelope"> {
  const canonical = canonicalJson(request);
  const hash = contentHash(canonical);
  const envelope = keptEnvelope(request, canonical);
  return { hash, ...(envelope !== undefined && { envelope }) };
}
