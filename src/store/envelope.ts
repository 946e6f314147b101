import { createHash } from "node:crypto";
import { canonicalJson, type JournalEntry, type Json, keptEnvelope } from "../kernel/index.js";

/**
 * What a journal row says about the request it answers: the hash of its canonical form, and as much of it as is kept to
 * tell how another request differs.
 *
 * @example
 * const { hash, envelope } = sealEnvelope({ kind: "tool_attempt", toolName: "weather", args: { city: "Oslo" } });
 */
export function sealEnvelope(request: Json): Pick<JournalEntry, "hash" | "envelope"> {
  const canonical = canonicalJson(request);
  const hash = createHash("sha256").update(canonical).digest("base64url");
  const envelope = keptEnvelope(request);
  return { hash, ...(envelope !== undefined && { envelope }) };
}
