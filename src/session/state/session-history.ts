import {
  beginningBefore,
  type Head,
  type HistoryEnd,
  type HistoryWindow,
  isConversation,
  type Message,
  miscounted,
  NOTHING_UNSTORED,
  type SessionConfig,
  windowPlace,
} from "../../kernel/index.js";
import type { StoreClient } from "../../store/index.js";
import type { SessionHooks } from "../plugins/index.js";
import { haveAttachments } from "../stored/index.js";

/**
 * The messages of a session's current frame. They are read from the end, as far back as something needs them: opening
 * and forking cost the same at any length, and so does a turn whose model is given only the last few.
 */
export class SessionHistory {
  readonly #store: Pick<StoreClient, "tail">;
  /** The end of it, as far as it was read. */
  #read: Message[] = [];
  /** The node before those; null when they are all. */
  #before: string | null;
  #known: number | undefined;
  /** Set while more of it is being read. */
  #reading: Promise<void> | undefined;
  /** Which frame's it is: what was being read when another one began is not part of it. */
  #frame = 0;
  #hasAttachments = false;
  #hasCuts = false;
  /** Tokens the last model call read. */
  promptTokens: number | null = null;
  /** What the last stored turn's requests had beside the history: a fork takes it along, so that it begins as they did. */
  unstored = NOTHING_UNSTORED;
  /** The same of the session this one was forked from, until a turn of its own is stored. */
  inherited = NOTHING_UNSTORED;

  constructor(store: Pick<StoreClient, "tail">, head: Pick<Head, "leaf" | "messageCount"> | undefined) {
    this.#store = store;
    this.#before = head?.leaf ?? null;
    this.#known = this.#before === null ? 0 : head?.messageCount;
  }

  /** How many messages there are, when somebody has counted them. */
  get known(): number | undefined {
    return this.#known;
  }

  /** Something that was read or added has an attachment. */
  get hasAttachments(): boolean {
    return this.#hasAttachments;
  }

  /** Of something that was read or added it is known that it was cut off: who asks a model says so, and looks for it. */
  get hasCuts(): boolean {
    return this.#hasCuts;
  }

  /** How many messages there are. Reads them only when nobody has counted them yet. */
  async count(): Promise<number> {
    return this.#known ?? (await this.read()).length;
  }

  /** All of them. */
  async read(): Promise<readonly Message[]> {
    return (await this.from(0)).messages;
  }

  /** What the next turn needs: all of them or those of a window, unless its context transforms are to say what that is. */
  ahead(
    hooks: Pick<SessionHooks, "has">,
    { window }: Pick<SessionConfig, "window">,
  ): readonly Message[] | Promise<readonly Message[]> {
    if (hooks.has("context_transform")) return [];
    return window === null ? this.read() : this.#within(window);
  }

  async #within(window: HistoryWindow): Promise<readonly Message[]> {
    const place = await this.windowStart(window);
    const { start, messages } = await this.from(place);
    return place === start ? messages : messages.slice(place - start);
  }

  /** The first message of a window: of the block it begins with, the one the turn there began with. */
  async windowStart(window: HistoryWindow): Promise<number> {
    const place = windowPlace(this.#known ?? (await this.count()), window);
    for (let reach = place; reach > 0; reach = Math.max(0, reach - STRIDE)) {
      const { start, messages } = await this.from(reach);
      const beginning = beginningBefore(messages, place - start);
      if (beginning !== undefined) return start + beginning;
      if (start === 0) break;
    }
    return 0;
  }

  /** Another one in every frame. */
  get frame(): number {
    return this.#frame;
  }

  /** Those from a place on, and perhaps some before it that are here anyway. */
  async from(place: number): Promise<HistoryEnd> {
    while (this.#before !== null) {
      const start = this.#known === undefined ? undefined : this.#known - this.#read.length;
      // Who wants all of them is told when there are more, or fewer, than the head says.
      if (start !== undefined && start <= place && place > 0) return { start, messages: this.#read };
      const wanted = start === undefined || place <= 0 ? Number.POSITIVE_INFINITY : start - place;
      this.#reading ??= this.#readBack(this.#before, wanted).finally(() => {
        this.#reading = undefined;
      });
      await this.#reading;
    }
    return { start: 0, messages: this.#read };
  }

  /** Those between two places, negative ones counted from the end; with what is `behind` the history, as if it were part of it. */
  async slice(from: number, to?: number, behind: () => readonly Message[] = () => []): Promise<readonly Message[]> {
    for (;;) {
      const total = (await this.count()) + behind().length;
      const { messages, start } = await this.from(placeIn(total, from));
      // What was stored meanwhile is behind the others, and a frame that was left meanwhile is not asked for any more.
      const all = messages.length + start + behind().length;
      const first = placeIn(all, from);
      if (first < start) continue;
      return [...messages, ...behind()].slice(first - start, Math.max(first, placeIn(all, to ?? all)) - start);
    }
  }

  /** Reads `wanted` nodes more. Records are among them, so it may have to be asked again. */
  async #readBack(leaf: string, wanted: number): Promise<void> {
    const frame = this.#frame;
    const { messages, before } = await this.#store.tail(leaf, wanted);
    if (this.#frame !== frame) return;
    const older = messages.filter(isConversation);
    const read = older.concat(this.#read);
    if (before === null) {
      const { length } = read;
      if (this.#known !== undefined && this.#known !== length) throw miscounted(leaf, length, this.#known);
      this.#known = length;
    }
    this.#read = read;
    this.#before = before;
    this.#sees(older);
  }

  /** These were stored behind the others. */
  grow(messages: readonly Message[]): void {
    const conversation = messages.filter(isConversation);
    this.#read.push(...conversation);
    if (this.#known !== undefined) this.#known += conversation.length;
    this.#sees(conversation);
  }

  /** What of the messages is to be known without looking at all of them again. */
  #sees(messages: readonly Message[]): void {
    this.#hasAttachments ||= haveAttachments(messages);
    this.#hasCuts ||= messages.some(({ interrupted }) => interrupted === true);
  }

  /** It goes on behind another node, with so many messages up to it. */
  goTo(leaf: string | null, count: number): void {
    this.restart([]);
    this.#before = leaf;
    this.#known = count;
  }

  /** Another frame begins, with these. */
  restart(messages: readonly Message[]): void {
    this.#frame++;
    this.promptTokens = null;
    this.inherited = this.unstored = NOTHING_UNSTORED;
    this.#read = [];
    this.#before = null;
    this.#known = 0;
    this.#hasAttachments = false;
    this.#hasCuts = false;
    this.grow(messages);
  }
}

/** Messages read at once on the way back to the beginning of a turn. */
const STRIDE = 16;

function placeIn(count: number, place: number): number {
  return place < 0 ? Math.max(0, count + place) : Math.min(place, count);
}
