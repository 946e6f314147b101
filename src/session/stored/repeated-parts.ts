import type { Head } from "../../kernel/index.js";
import type { StoreClient } from "../../store/index.js";
import { contentHash, decode, encode } from "../../wire/index.js";
import { COMPONENT, Component } from "./components.js";

/** What a journal row has of something large: its bytes, or the hash of a component that has them. */
export type StoredPart = { readonly bytes: Uint8Array } | { readonly hash: string };

/** What a turn is asked with that is large, and mostly the same in the next turn. */
export type RepeatedName = "system" | "tools" | "offered";

/** Shorter than this it costs less to write a part again than to keep it. */
const MIN_KEPT = 1_024;

/** A part as it was encoded last. */
interface Encoded {
  readonly value: unknown;
  readonly bytes: Uint8Array;
  /** Undefined for one that is too short to be kept. */
  readonly hash: string | undefined;
}

/**
 * Prompt text and tool definitions, as the journal rows of a session's turns have them. The commit of a turn keeps what
 * is large as a component, which all sessions with the same content share; the row of the next turn then has its hash
 * alone. So what a turn writes depends on what changed, and not on how much its model is told.
 */
export class RepeatedParts {
  readonly components = [
    new Component(COMPONENT.askedSystem),
    new Component(COMPONENT.askedTools),
    new Component(COMPONENT.askedOffered),
  ] as const;
  readonly #encoded = new Map<RepeatedName, Encoded>();

  /** The part as a row has it, and whether it is another one than was asked for last. */
  row(name: RepeatedName, value: unknown, head: Pick<Head, "components"> | undefined): StoredPart {
    const { bytes, hash } = this.#encode(name, value);
    return hash !== undefined && head?.components[COMPONENT_OF[name]] === hash ? { hash } : { bytes };
  }

  /** Goes with the commit of the turn that was asked with these parts. */
  keep(head: Pick<Head, "components"> | undefined): void {
    for (const component of this.components) {
      const { hash, bytes } = this.#encoded.get(NAME_OF[component.name] as RepeatedName) ?? {};
      if (hash !== undefined && bytes !== undefined && head?.components[component.name] !== hash)
        component.change(bytes);
    }
  }

  /** Encoded anew only when it is another value: texts, and lists of the same things. */
  #encode(name: RepeatedName, value: unknown): Encoded {
    const last = this.#encoded.get(name);
    if (last !== undefined && isSame(last.value, value)) return last;
    const bytes = encode(value);
    const encoded = { value, bytes, hash: bytes.length < MIN_KEPT ? undefined : contentHash(bytes) };
    this.#encoded.set(name, encoded);
    return encoded;
  }
}

const COMPONENT_OF: Readonly<Record<RepeatedName, string>> = {
  system: COMPONENT.askedSystem,
  tools: COMPONENT.askedTools,
  offered: COMPONENT.askedOffered,
};

const NAME_OF: Readonly<Record<string, RepeatedName>> = {
  [COMPONENT.askedSystem]: "system",
  [COMPONENT.askedTools]: "tools",
  [COMPONENT.askedOffered]: "offered",
};

/** The same text, or a list of the same things. */
export function isSame(a: unknown, b: unknown): boolean {
  if (a === b) return true;
  if (!Array.isArray(a) || !Array.isArray(b)) return false;
  return a.length === b.length && a.every((item, index) => item === b[index]);
}

/** What a row has of a part; undefined when its component is gone. */
export async function readPart<T>(part: StoredPart, store: Pick<StoreClient, "component">): Promise<T | undefined> {
  const bytes = "bytes" in part ? part.bytes : await store.component(part.hash);
  return bytes === undefined ? undefined : decode<T>(bytes);
}
