import {
  addEntry,
  addLedgers,
  componentMissing,
  type Head,
  type Ledger,
  type LedgerEntry,
  ledgerSince,
} from "../../kernel/index.js";
import type { StoreClient } from "../../store/index.js";
import { contentHash, decode } from "../../wire/index.js";

/** The parts of a session's state that are stored beside its history, each under its content. */
export const COMPONENT = {
  /** What it may not do, and what its plugins are told of it. */
  authority: "authority",
  /** Its tools as far as they differ from the registered ones. */
  tools: "tools",
  config: "config",
  /** What it may spend, when that is not what the runtime's options say. */
  budget: "budget",
  /** The protocol's turn options. */
  protocol: "protocol",
  /** The code executor's state. */
  execution: "execution",
  /** What was left for the first turn. */
  firstInput: "first_input",
  /** What waits for the session's turns. */
  inputs: "inputs",
  /** The frame the last turn left for, until the session is in it. */
  entering: "entering",
  /** What its last turn was asked with, as far as that is large: the system text, the tools, those that were offered. */
  askedSystem: "asked_system",
  askedTools: "asked_tools",
  askedOffered: "asked_offered",
} as const;

export const pluginComponent = (pluginId: string): string => `plugin:${pluginId}`;

/** Reads the components of a head. `unsaved`: bytes by hash that are not in the store yet, or were read already. */
export class ComponentReader {
  readonly #store: Pick<StoreClient, "component" | "components">;
  readonly #head: Pick<Head, "sessionId" | "components"> | undefined;
  readonly #unsaved: ReadonlyMap<string, Uint8Array>;

  constructor(
    store: Pick<StoreClient, "component" | "components">,
    head: Pick<Head, "sessionId" | "components"> | undefined,
    unsaved: ReadonlyMap<string, Uint8Array> = new Map(),
  ) {
    this.#store = store;
    this.#head = head;
    this.#unsaved = unsaved;
  }

  /** False for a session nobody has stored yet. */
  get isStored(): boolean {
    return this.#head !== undefined;
  }

  async bytes(name: string): Promise<Uint8Array | undefined> {
    const hash = this.#head?.components[name];
    if (hash === undefined) return undefined;
    const bytes = this.#unsaved.get(hash) ?? (await this.#store.component(hash));
    if (bytes !== undefined) return bytes;
    throw componentMissing(`The ${name} of session ${this.#head?.sessionId}`);
  }

  /** Those that are there, in one ask. */
  async several(names: readonly string[]): Promise<ReadonlyMap<string, Uint8Array>> {
    const hashes = new Map(
      names.flatMap((name) => {
        const hash = this.#head?.components[name];
        return hash === undefined ? [] : [[name, hash] as const];
      }),
    );
    if (hashes.size === 0) return new Map();
    const found = await this.#store.components([...hashes.values()]);
    return new Map(
      [...hashes].flatMap(([name, hash]) => {
        const bytes = found.get(hash);
        return bytes === undefined ? [] : [[name, bytes] as const];
      }),
    );
  }

  async value<T>(name: string): Promise<T | undefined> {
    const bytes = await this.bytes(name);
    return bytes === undefined ? undefined : decode<T>(bytes);
  }
}

/**
 * One component of a session, as its owner keeps it: encoded for a write, clean once the store has what was encoded. Null
 * when there is nothing to store any more.
 */
export interface StoredComponent {
  readonly name: string;
  readonly dirty: boolean;
  encode(): Uint8Array | null;
  /** `encoded` is stored. An owner that changed after it was encoded stays dirty. */
  written(encoded: Uint8Array | null): void;
}

/** A component whose owner gives it new bytes whenever it changed. */
export class Component implements StoredComponent {
  name: string;
  /** Undefined while the store has them. */
  #unwritten: Uint8Array | null | undefined;

  constructor(name: string) {
    this.name = name;
  }

  get dirty(): boolean {
    return this.#unwritten !== undefined;
  }

  /** `name`: of an owner of several, which changes one per write. */
  change(bytes: Uint8Array | null, name = this.name): void {
    this.#unwritten = bytes;
    this.name = name;
  }

  encode(): Uint8Array | null {
    return this.#unwritten ?? null;
  }

  written(bytes: Uint8Array | null): void {
    if (this.#unwritten === bytes) this.#unwritten = undefined;
  }
}

/** A head's components with changes applied, and the bytes the store does not have yet. */
export function applyComponents(
  previous: Readonly<Record<string, string>>,
  changes: Iterable<{ readonly name: string; readonly bytes: Uint8Array | null }>,
): { components: Record<string, string>; bytes: { hash: string; bytes: Uint8Array }[] } {
  const components = { ...previous };
  const added: { hash: string; bytes: Uint8Array }[] = [];
  for (const { name, bytes } of changes) {
    if (bytes === null) {
      delete components[name];
      continue;
    }
    const hash = contentHash(bytes);
    if (components[name] !== hash) added.push({ hash, bytes });
    components[name] = hash;
  }
  return { components, bytes: added };
}

/** Usage that no commit has written yet: dirty, encoded and written as a component is. */
export class UnwrittenUsage {
  readonly #whole: () => Ledger;
  #counted: Ledger = NONE;
  #held: Ledger = NONE;

  /** `whole`: everything that was ever counted, this included. */
  constructor(whole: () => Ledger) {
    this.#whole = whole;
  }

  get dirty(): boolean {
    return this.#counted.length > 0;
  }

  /** What the whole ledger could not hold is refused here, and not when it is written. */
  count(entry: LedgerEntry): void {
    addEntry(this.#whole(), entry);
    this.#counted = addEntry(this.#counted, entry);
  }

  /** What is written with the running turn and not before: taken up again after a crash, the turn counts it anew. */
  get held(): Ledger {
    return this.#held;
  }

  hold(entry: LedgerEntry): void {
    addEntry(this.#whole(), entry);
    this.#held = addEntry(this.#held, entry);
  }

  /** The turn is being stored, or will never be: what was held for it goes with the next write. */
  release(): void {
    this.#counted = addLedgers(this.#counted, this.#held);
    this.#held = NONE;
  }

  encode(): Ledger {
    return this.#counted;
  }

  written(counted: Ledger): void {
    this.#counted = ledgerSince(this.#counted, counted);
  }
}

const NONE: Ledger = [];
