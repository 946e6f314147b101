import {
  type AttachmentSource,
  type Commit,
  type InputItem,
  type Message,
  type Part,
  TroupeError,
} from "../../kernel/index.js";
import type { StoreClient } from "../../store/index.js";
import { contentHash } from "../../wire/index.js";

/** The attachments of a session: bytes by the hash of their content. What is new is written with the next commit. */
export class Blobs {
  readonly #store: Pick<StoreClient, "component" | "componentSize">;
  /** With how many are about to refer to each. */
  readonly #unsaved = new Map<string, { readonly bytes: Uint8Array; users: number }>();

  constructor(store: Pick<StoreClient, "component" | "componentSize">) {
    this.#store = store;
  }

  /** Takes bytes over until `release`; the same bytes are kept once. */
  keep(bytes: Uint8Array): { readonly hash: string; readonly bytes: number } {
    const hash = contentHash(bytes);
    const kept = this.#unsaved.get(hash);
    if (kept === undefined) this.#unsaved.set(hash, { bytes, users: 1 });
    else kept.users++;
    return { hash, bytes: bytes.byteLength };
  }

  /** The size of bytes that are stored already, or are about to be: kept like one's own. */
  async refer(hash: string): Promise<number | undefined> {
    const kept = this.#unsaved.get(hash);
    if (kept === undefined) return this.#store.componentSize(hash);
    kept.users++;
    return kept.bytes.byteLength;
  }

  /** Whoever kept these has stored them by now, or never will: nothing is written that nobody refers to. */
  release(hashes: Iterable<string>): void {
    for (const hash of hashes) {
      const kept = this.#unsaved.get(hash);
      if (kept !== undefined && --kept.users === 0) this.#unsaved.delete(hash);
    }
  }

  async find(hash: string): Promise<Uint8Array | undefined> {
    return this.#unsaved.get(hash)?.bytes ?? this.#store.component(hash);
  }

  /** Those of the given messages, by hash, for a model to read. `attachment_missing` when one is not there. */
  async of(...conversation: readonly (readonly Message[])[]): Promise<ReadonlyMap<string, Uint8Array>> {
    const found = new Map<string, Uint8Array>();
    const hashes = new Set(conversation.flat().flatMap(({ parts }) => [...attachedTo(parts)]));
    for (const hash of hashes) {
      const bytes = await this.find(hash);
      if (bytes === undefined)
        throw new TroupeError("attachment_missing", `The attachment ${hash} is no longer stored.`, {
          details: { hash },
        });
      found.set(hash, bytes);
    }
    return found;
  }

  get dirty(): boolean {
    return this.#unsaved.size > 0;
  }

  /** What the next commit has to write. */
  encode(): Commit["components"] {
    return [...this.#unsaved].map(([hash, { bytes }]) => ({ hash, bytes }));
  }

  written(blobs: Commit["components"]): void {
    for (const { hash } of blobs) this.#unsaved.delete(hash);
  }
}

/** Items as parts of a message. Bytes become a blob of the session, stored with its next write unless they are released. */
export async function storedParts(blobs: Blobs, items: readonly InputItem[]): Promise<readonly Part[]> {
  const parts: Part[] = [];
  try {
    for (const item of items) {
      if (item.type === "text") parts.push(item);
      else parts.push(await attachmentPart(blobs, item.source));
    }
    return parts;
  } catch (error) {
    blobs.release(attachedTo(parts));
    throw error;
  }
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
      const bytes = await blobs.refer(given.hash);
      if (bytes !== undefined) return { ...part, source: { kind: "stored", hash: given.hash, bytes } };
      throw new TroupeError("invalid_turn_input", "The turn's input cannot be used: a stored attachment is not there.");
    }
  }
}

/** Do these messages have attachments? */
export function haveAttachments(messages: readonly Message[]): boolean {
  return messages.some(({ parts }) => parts.some(({ type }) => type === "attachment"));
}

/** The hashes of what is stored beside these parts. */
export function* attachedTo(parts: readonly Part[]): Iterable<string> {
  for (const part of parts) if (part.type === "attachment" && part.source.kind === "stored") yield part.source.hash;
}
