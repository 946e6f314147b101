import { type AttachmentSource, type InputItem, type Message, type Part, TroupeError } from "../kernel/index.js";
import type { StoreClient } from "../store/index.js";
import { contentHash } from "../wire/index.js";

/** The attachments of a session: bytes by the hash of their content. What is new is written with the next commit. */
export class Blobs {
  readonly #store: Pick<StoreClient, "component">;
  readonly #unsaved = new Map<string, Uint8Array>();

  constructor(store: Pick<StoreClient, "component">) {
    this.#store = store;
  }

  /** Takes bytes over; the same bytes are kept once. */
  keep(bytes: Uint8Array): { readonly hash: string; readonly bytes: number } {
    const hash = contentHash(bytes);
    this.#unsaved.set(hash, bytes);
    return { hash, bytes: bytes.byteLength };
  }

  async find(hash: string): Promise<Uint8Array | undefined> {
    return this.#unsaved.get(hash) ?? this.#store.component(hash);
  }

  /** Those of the given messages, by hash, for a model to read. `attachment_missing` when one is not there. */
  async of(...conversation: readonly (readonly Message[])[]): Promise<ReadonlyMap<string, Uint8Array>> {
    const found = new Map<string, Uint8Array>();
    for (const hash of hashesIn(conversation)) {
      const bytes = await this.find(hash);
      if (bytes === undefined)
        throw new TroupeError("attachment_missing", `The attachment ${hash} is no longer stored.`, {
          details: { hash },
        });
      found.set(hash, bytes);
    }
    return found;
  }

  /** What the next commit has to write. */
  unsaved(): { readonly hash: string; readonly bytes: Uint8Array }[] {
    return this.#unsaved.size === 0 ? [] : [...this.#unsaved].map(([hash, bytes]) => ({ hash, bytes }));
  }

  written(blobs: readonly { readonly hash: string }[]): void {
    for (const { hash } of blobs) this.#unsaved.delete(hash);
  }
}

/** Items as parts of a message. Bytes become a blob of the session, stored with its next write. */
export async function storedParts(blobs: Blobs, items: readonly InputItem[]): Promise<readonly Part[]> {
  const parts: Part[] = [];
  for (const item of items) {
    if (item.type === "text") parts.push(item);
    else parts.push(await attachmentPart(blobs, item.source));
  }
  return parts;
}

async function attachmentPart(blobs: Blobs, given: AttachmentSource): Promise<Part> {
  const { mediaType, name } = given;
  const part = { type: "attachment", mediaType, ...(name !== undefined && { name }) } as const;
  switch (given.kind) {
    case "url":
      return { ...part, source: { kind: "url", url: given.url } };
    case "inline":
      return { ...part, source: { kind: "stored", ...blobs.keep(given.bytes) } };
    case "stored": {
      const bytes = await blobs.find(given.hash);
      if (bytes !== undefined)
        return { ...part, source: { kind: "stored", hash: given.hash, bytes: bytes.byteLength } };
      throw new TroupeError("invalid_turn_input", "The turn's input cannot be used: a stored attachment is not there.");
    }
  }
}

/** Do these messages have attachments? */
export function haveAttachments(messages: readonly Message[]): boolean {
  return messages.some(({ parts }) => parts.some(({ type }) => type === "attachment"));
}

function hashesIn(conversation: readonly (readonly Message[])[]): Set<string> {
  const hashes = new Set<string>();
  for (const messages of conversation)
    for (const { parts } of messages)
      for (const part of parts)
        if (part.type === "attachment" && part.source.kind === "stored") hashes.add(part.source.hash);
  return hashes;
}
