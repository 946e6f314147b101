/** msgpack's header of a text of 43 bytes, as long as a content hash. */
const HASH_HEADER = Buffer.from([0xd9, 43]);
const HASH = /^[A-Za-z0-9_-]{43}$/;

/** Every content hash that stands anywhere in encoded bytes. What only looks like one keeps something longer. */
export function hashesIn(bytes: Uint8Array): string[] {
  const text = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const found: string[] = [];
  for (let at = text.indexOf(HASH_HEADER); at !== -1; at = text.indexOf(HASH_HEADER, at + 1)) {
    const hash = text.toString("latin1", at + 2, at + 45);
    if (HASH.test(hash)) found.push(hash);
  }
  return found;
}
