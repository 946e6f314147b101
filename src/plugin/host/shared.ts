import type { HostMethod } from "./host.js";

/** What the key of shared state may be made of. */
export interface SharedFacts {
  readonly sessionId: string;
  /** Whose session it is, when it is somebody's. */
  readonly tenant: string | undefined;
  /** The session's agent with its version, when it has one. */
  readonly agent: string | undefined;
}

/**
 * State of a plugin that sessions share: one for each key, stored beside the sessions. Whoever has the same key sees the
 * same state, on whatever thread it is.
 */
export interface SharedDefinition<Shared, S = unknown> {
  /** The key a session has: up to 256 bytes of text. It may only follow from the facts, and is asked for with every call. */
  readonly key: (facts: SharedFacts) => string;
  /** The state of a key that nobody has written yet. */
  readonly state: () => Shared;
  /** Any Standard Schema or a JSON Schema: what an update leaves must fit it. */
  readonly schema?: S;
  /** Turns state that another version of the plugin stored into this version's. */
  readonly migrate?: (state: unknown, fromVersion: string) => Shared;
}

/** Shared state for those who only read. */
export interface SharedReader<Shared> {
  /** As it is stored now. A copy: changing it changes nothing. */
  read(): Promise<Shared>;
}

/** Shared state of the key that the session has. */
export interface SharedState<Shared> extends SharedReader<Shared> {
  /**
   * Changes it, over whatever is stored then, and resolves with what is stored now. `change` is given a copy, which it
   * changes or returns another for; it may run again, so it must do nothing else, and it must not be asynchronous. What it
   * throws rejects the update, and nothing is stored.
   *
   * @example
   * const { calls } = await shared.update((state) => {
   *   state.calls++;
   * });
   */
  // biome-ignore lint/suspicious/noConfusingVoidType: one that changes its copy returns nothing
  update(change: (state: Shared) => Shared | void): Promise<Shared>;
}

/** Not a method of any interface: every hook, tool and operation has it when its plugin declares `shared`. */
export const SHARED = "shared" as HostMethod;

/** The longest key, in bytes of UTF-8. */
export const MAX_SHARED_KEY = 256;
/** The largest state of one key, in bytes as it is stored. */
export const MAX_SHARED_BYTES = 64 * 1024;
/** The most keys of one plugin. */
export const MAX_SHARED_KEYS = 100_000;
/** How often an update is made again over what somebody else stored meanwhile. */
export const MAX_SHARED_ATTEMPTS = 1_000;
