import {
  type AttachmentRef,
  type AttachmentSource,
  attachmentMissing,
  attachmentsIn,
  type Commit,
  type InputItem,
  invalidTurnInput,
  type Message,
  type Part,
} from "../../kernel/index.js";
import type { StoreClient } from "../../store/index.js";
import { contentHash } from "../../wire/index.js";

/** The attachments of a session: bytes by the hash of their content. What is new is written with the next commit. */
export class Blobs {
  readonly #store: Pick<StoreClient, "component" | "componentSize">;
  /** With how many are about to refer to each. */
  readonly #unsaved = new Map<string, { readonly bytes: Uint8Array; users: number }>();

  /** Whether a message of the session has this attachment: what others have stored is not the session's to name. */
  readonly #isOwn: (hash: string) => Promise<boolean>;

  constructor(
    store: Pick<StoreClient, "component" | "componentSize">,
    isOwn: (hash: string) => Promise<boolean> = async () => false,
  ) {
    this.#store = store;
    this.#isOwn = isOwn;
  }

  /** Takes bytes over until `release`; the same bytes are kept once. */
  keep(bytes: Uint8Array): { readonly hash: string; readonly bytes: number } {
    const hash = contentHash(bytes);
    const kept = this.#unsaved.get(hash);
    if (kept === undefined) this.#unsaved.set(hash, { bytes, users: 1 });
    else kept.users++;
    return { hash, bytes: bytes.byteLength };
  }

  /** The size of an attachment of the session that is stored already, or is about to be: kept like a new one. */
  async refer(hash: string): Promise<number | undefined> {
    const kept = this.#unsaved.get(hash);
    if (kept === undefined) return (await this.#isOwn(hash)) ? this.#store.componentSize(hash) : undefined;
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

  /** The bytes of an attachment that no commit has written yet. */
  unsaved(hash: string): Uint8Array | undefined {
    return this.#unsaved.get(hash)?.bytes;
  }

  /** Those of the given messages, by hash, for a model to read. `attachment_missing` when one is not there. */
  async of(...conversation: readonly (readonly Message[])[]): Promise<ReadonlyMap<string, Uint8Array>> {
    const found = new Map<string, Uint8Array>();
    const hashes = new Set(conversation.flat().flatMap(({ parts }) => [...attachedTo(parts)]));
    for (const hash of hashes) {
      const bytes = await this.find(hash);
      if (bytes === undefined) throw attachmentMissing(hash);
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
  const source = await keptSource(blobs, given);
  if (source !== undefined) return { type: "attachment", mediaType, ...(name !== undefined && { name }), source };
  throw invalidTurnInput("a stored attachment is not there");
}

/** How a message names an attachment. Bytes become a blob until they are released; undefined when a stored one is not there. */
export async function keptSource(
  blobs: Blobs,
  given: AttachmentRef | { readonly kind: "inline"; readonly bytes: Uint8Array },
): Promise<AttachmentRef | undefined> {
  switch (given.kind) {
    case "url":
      return { kind: "url", url: given.url };
    case "inline":
      return { kind: "stored", ...blobs.keep(given.bytes) };
    case "stored": {
      const bytes = await blobs.refer(given.hash);
      return bytes === undefined ? undefined : { kind: "stored", hash: given.hash, bytes };
    }
  }
}

/** Does one of these messages have this attachment? */
export function hasAttachment(messages: readonly Message[], hash: string): boolean {
  return messages.some(({ parts }) => [...attachedTo(parts)].includes(hash));
}

/** Do these messages have attachments? */
export function haveAttachments(messages: readonly Message[]): boolean {
  return messages.some(({ parts }) => parts.some(isAttaching));
}

function isAttaching(part: Part): boolean {
  return part.type === "attachment" || (part.type === "tool_result" && part.content !== undefined);
}

/** The hashes of what is stored beside these parts. */
export function* attachedTo(parts: readonly Part[]): Iterable<string> {
  for (const { source } of attachmentsIn(parts)) if (source.kind === "stored") yield source.hash;
}
