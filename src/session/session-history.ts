import { isConversation, type Message } from "../kernel/index.js";
import type { StoreClient } from "../store/index.js";
import { haveAttachments } from "./blobs.js";

/**
 * The messages of a session's current frame, read when something first needs them: opening and forking cost the same at
 * any length.
 */
export class SessionHistory {
  readonly #store: StoreClient;
  readonly #leaf: () => string | null;
  #messages: Message[] | undefined;
  /** Set while it is being read. */
  #reading: Promise<readonly Message[]> | undefined;
  #hasAttachments = false;

  constructor(store: StoreClient, leaf: () => string | null) {
    this.#store = store;
    this.#leaf = leaf;
  }

  /** Something that was read or added has an attachment. */
  get hasAttachments(): boolean {
    return this.#hasAttachments;
  }

  read(): Promise<readonly Message[]> {
    if (this.#messages !== undefined) return Promise.resolve(this.#messages);
    this.#reading ??= this.#read().finally(() => {
      this.#reading = undefined;
    });
    return this.#reading;
  }

  async #read(): Promise<readonly Message[]> {
    const path = await this.#store.history(this.#leaf());
    // The frame may have been left meanwhile: then this is no longer the history.
    if (this.#messages === undefined) {
      this.#messages = path.filter(isConversation);
      this.#hasAttachments = haveAttachments(this.#messages);
    }
    return this.#messages;
  }

  /** These were stored behind the others. */
  grow(messages: readonly Message[]): void {
    this.#messages?.push(...messages);
    this.#hasAttachments ||= haveAttachments(messages);
  }

  /** Another frame begins, with these. */
  restart(messages: readonly Message[]): void {
    this.#messages = [];
    this.#hasAttachments = false;
    this.grow(messages);
  }
}
