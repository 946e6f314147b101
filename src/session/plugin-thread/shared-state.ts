import { isRecord, TroupeError } from "../../kernel/index.js";
import {
  type LoadedPlugin,
  MAX_SHARED_ATTEMPTS,
  MAX_SHARED_KEY,
  parseAny,
  type Schema,
  type SharedDefinition,
  type SharedFacts,
  type SharedState,
} from "../../plugin/index.js";
import { decode, encodeState } from "../../wire/index.js";

/** What a plugin says of its shared state, and what its key is made of in one session. */
export interface SharedOwner {
  readonly pluginId: string;
  readonly version: string;
  readonly definition: SharedDefinition<unknown, Schema>;
  readonly facts: SharedFacts;
}

/** Null for a plugin that has none. */
export function sharedOwner(
  { shared: definition, manifest: { id: pluginId, version } }: Pick<LoadedPlugin, "shared" | "manifest">,
  { sessionId, facts }: { readonly sessionId: string; readonly facts?: SharedFacts | undefined },
): SharedOwner | null {
  if (definition === undefined) return null;
  return { pluginId, version, definition, facts: facts ?? { sessionId, tenant: undefined, agent: undefined } };
}

/** What a session worker is asked about shared state, in the name of a call. `nth`: the place of the update in the call. */
export type SharedAsk =
  | readonly ["read", key: string]
  /** An update takes its place among what the call asks for, and is told what is stored, or what it came to before. */
  | readonly ["begin", key: string]
  | readonly ["write", nth: number, key: string, version: number, state: Uint8Array];

/** A row of shared state; version 0: there is none. */
export interface SharedRow {
  readonly version: number;
  readonly state: Uint8Array | null;
}

export interface SharedAnswer {
  readonly nth?: number;
  /** As it is stored: what to write over. Absent when the update is done. */
  readonly row?: SharedRow;
  /** What the update stored. */
  readonly done?: Uint8Array;
}

/** As it is stored: the state, and the version of the plugin that stored it. */
interface SharedRecord {
  readonly version: string;
  readonly state: unknown;
}

/** What the last update of this thread knows is stored: the next one of the same key need not lose against it first. */
type Known = SharedRow | undefined;

/** The updates of a key that this thread makes, one after another. */
const tails = new Map<string, Promise<Known>>();

/** Shared state in one call of a plugin. */
export class SharedAccess implements SharedState<unknown> {
  readonly #owner: SharedOwner;
  readonly #ask: (args: SharedAsk) => Promise<unknown>;

  constructor(owner: SharedOwner, ask: (args: SharedAsk) => Promise<unknown>) {
    this.#owner = owner;
    this.#ask = ask;
  }

  read(): Promise<unknown> {
    return unattended(
      (async () => {
        const { row } = readAnswer(await this.#ask(["read", this.#key()]));
        return this.#stateOf(row?.state ?? null);
      })(),
    );
  }

  update(change: (state: unknown) => unknown): Promise<unknown> {
    return unattended(this.#update(change));
  }

  async #update(change: (state: unknown) => unknown): Promise<unknown> {
    if (typeof change !== "function") throw this.#invalid("update takes a function that changes the state");
    const key = this.#key();
    // Asked at once, whoever is before it: the order in which a call asks must be the same when it is made again.
    const begun = unattended(this.#ask(["begin", key]));
    let value: unknown;
    await inTurn(`${this.#owner.pluginId}:${key}`, async (known) => {
      const { nth = -1, row, done } = readAnswer(await begun);
      if (done !== undefined) {
        value = this.#stateOf(done);
        return undefined;
      }
      const stored = await this.#change({ nth, key, change, over: known ?? row ?? NO_ROW });
      value = this.#stateOf(stored.state);
      return stored.version > 0 ? stored : undefined;
    });
    return value;
  }

  async #change({
    nth,
    key,
    change,
    over,
  }: {
    nth: number;
    key: string;
    change: (state: unknown) => unknown;
    over: SharedRow;
  }): Promise<SharedRow> {
    let row = over;
    for (let attempt = 0; attempt < MAX_SHARED_ATTEMPTS; attempt++) {
      const state = this.#encode(await this.#changed(change, this.#stateOf(row.state)));
      const answer = readAnswer(await this.#ask(["write", nth, key, row.version, state]));
      if (answer.row === undefined) {
        const done = answer.done ?? state;
        // Stored in an earlier life of the call: what is stored by now nobody here knows.
        return { state: done, version: answer.done === undefined ? row.version + 1 : 0 };
      }
      row = answer.row;
    }
    const { pluginId } = this.#owner;
    throw new TroupeError(
      "shared_contended",
      `The shared state ${key} of plugin ${pluginId} was changed by others ${MAX_SHARED_ATTEMPTS} times while an update was made. Ask again, or share less under one key.`,
      { retryable: true, details: { pluginId, key } },
    );
  }

  async #changed(change: (state: unknown) => unknown, before: unknown): Promise<unknown> {
    const returned = change(before);
    if (returned instanceof Promise) {
      unattended(returned);
      throw this.#invalid(
        "the function given to update is asynchronous; await what it needs before, and compute in it",
      );
    }
    const state = returned === undefined ? before : returned;
    const { schema } = this.#owner.definition;
    if (schema === undefined) return state;
    const parsed = await parseAny(schema, state, this.#what);
    if (parsed.ok) return parsed.value;
    throw this.#invalid(`it does not fit its schema: ${parsed.issues.join("; ")}`);
  }

  #key(): string {
    const { definition, facts } = this.#owner;
    const key: unknown = definition.key(facts);
    if (isSharedKey(key)) return key;
    const { pluginId } = this.#owner;
    throw new TroupeError(
      "shared_key_invalid",
      `The key of plugin ${pluginId}'s shared state must be a text of 1 to ${MAX_SHARED_KEY} bytes without control characters${
        typeof key === "string" ? "" : `, not ${key === null ? "null" : typeof key}`
      }.`,
      { details: { pluginId, sessionId: facts.sessionId } },
    );
  }

  #stateOf(stored: Uint8Array | null): unknown {
    const { definition, version } = this.#owner;
    if (stored === null) return definition.state();
    const record = decode<SharedRecord>(stored);
    if (record.version === version || definition.migrate === undefined) return record.state;
    return definition.migrate(record.state, record.version);
  }

  #encode(state: unknown): Uint8Array {
    const { version } = this.#owner;
    return encodeState({ version, state } satisfies SharedRecord, this.#what);
  }

  get #what(): string {
    return `The shared state of plugin ${this.#owner.pluginId}`;
  }

  #invalid(why: string): TroupeError {
    return sharedStateInvalid(this.#owner.pluginId, why);
  }
}

const NO_ROW: SharedRow = { version: 0, state: null };

/** Of a call that has no shared state. */
export function noShared(pluginId: string, isDeclared: boolean): TroupeError {
  const why = isDeclared
    ? "in sessionRestored the session is still being opened, and has no shared state yet"
    : `it has no shared state. Declare it: shared: { key: ({ tenant }) => tenant ?? "", state: () => ({ … }) }`;
  return sharedUnavailable(pluginId, why);
}

export function sharedUnavailable(pluginId: string, why: string): TroupeError {
  return new TroupeError("shared_unavailable", `Plugin ${pluginId}: ${why}.`, { details: { pluginId } });
}

export function sharedStateInvalid(pluginId: string, why: string, cause?: unknown): TroupeError {
  return new TroupeError("shared_state_invalid", `The shared state of plugin ${pluginId} is not changed: ${why}.`, {
    ...(cause !== undefined && { cause }),
    details: { pluginId },
  });
}

/** May shared state be stored under it? */
export function isSharedKey(key: unknown): key is string {
  // Control characters stand between the parts of a row's name, and half a character has no bytes.
  return (
    typeof key === "string" &&
    key !== "" &&
    !/\p{Cc}/u.test(key) &&
    key.isWellFormed() &&
    Buffer.byteLength(key) <= MAX_SHARED_KEY
  );
}

function readAnswer(answer: unknown): SharedAnswer {
  return isRecord(answer) ? (answer as SharedAnswer) : {};
}

async function inTurn(place: string, run: (known: Known) => Promise<Known>): Promise<void> {
  const before = tails.get(place);
  const mine = before === undefined ? run(undefined) : before.then(run, () => run(undefined));
  tails.set(place, mine);
  try {
    await mine;
  } finally {
    if (tails.get(place) === mine) tails.delete(place);
  }
}

/** A call nobody awaits must not end the thread it fails on. */
function unattended<T>(promise: Promise<T>): Promise<T> {
  promise.catch(() => undefined);
  return promise;
}
