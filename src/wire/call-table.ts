import { OwnMap } from "./own.js";

const FIRST_PLACES = 256;

/**
 * Calls that wait for their end, by numbers that go up. A map would do, but for its price: one that is filled and emptied
 * all the time is copied again and again, and each copy that V8 has left behind in its old space keeps alive all that came
 * after it until the whole heap is collected. With a hundred calls in flight that was two fifths of a hook's processor time.
 *
 * A call has its place by its number. One that is still there when the numbers have come round to its place moves to a map,
 * which has the few that take long.
 */
export class CallTable<T extends { readonly id: number }> {
  #places: (T | undefined)[] = emptyPlaces(FIRST_PLACES);
  readonly #long = new OwnMap<number, T>();
  #size = 0;
  #last = 0;

  get size(): number {
    return this.#size;
  }

  /** Adds a call; its number is higher than that of any other. */
  add(call: T): void {
    const at = call.id & (this.#places.length - 1);
    const before = this.#places[at];
    if (before !== undefined) {
      if (2 * this.#size > this.#places.length) {
        this.#grow();
        this.add(call);
        return;
      }
      this.#long.set(before.id, before);
    }
    this.#places[at] = call;
    this.#last = call.id;
    this.#size++;
  }

  get(id: number): T | undefined {
    const call = this.#places[id & (this.#places.length - 1)];
    if (call?.id === id) return call;
    return this.#long.size === 0 ? undefined : this.#long.get(id);
  }

  /** Takes a call out; false when there is none of this number. */
  delete(id: number): boolean {
    const at = id & (this.#places.length - 1);
    if (this.#places[at]?.id === id) this.#places[at] = undefined;
    else if (this.#long.size === 0 || !this.#long.delete(id)) return false;
    this.#size--;
    return true;
  }

  /** All of them, in the order they were added. */
  values(): T[] {
    const calls: T[] = [];
    this.#long.forEach((call) => {
      calls[calls.length] = call;
    });
    const places = this.#places;
    for (let n = 1; n <= places.length; n++) {
      const call = places[(this.#last + n) & (places.length - 1)];
      if (call !== undefined) calls[calls.length] = call;
    }
    return calls;
  }

  clear(): void {
    this.#places = emptyPlaces(FIRST_PLACES);
    this.#long.clear();
    this.#size = 0;
  }

  #grow(): void {
    const calls = this.values();
    this.#places = emptyPlaces(2 * this.#places.length);
    this.#long.clear();
    this.#size = 0;
    for (let n = 0; n < calls.length; n++) this.add(calls[n] as T);
  }
}

function emptyPlaces<T>(count: number): (T | undefined)[] {
  const places: (T | undefined)[] = [];
  for (let n = 0; n < count; n++) places[n] = undefined;
  return places;
}

/** The calls of a table that end when one signal aborts. Filled and emptied all the time as well, and so no set. */
export class SignalCalls {
  readonly #table: CallTable<{ readonly id: number }>;
  /** Those that wait, and some that have ended since, from the front. */
  readonly #ids: number[] = [];
  #count = 0;
  #waiting = 0;

  constructor(table: CallTable<{ readonly id: number }>) {
    this.#table = table;
  }

  add(id: number): void {
    if (this.#count >= FEW && this.#count >= 2 * this.#waiting) this.#keep(this.waiting());
    this.#ids[this.#count++] = id;
    this.#waiting++;
  }

  /** One of them is in the table no more. */
  ended(): void {
    if (--this.#waiting === 0) this.#count = 0;
  }

  waiting(): number[] {
    return this.#ids.slice(0, this.#count).filter((id) => this.#table.get(id) !== undefined);
  }

  #keep(ids: readonly number[]): void {
    for (let n = 0; n < ids.length; n++) this.#ids[n] = ids[n] as number;
    this.#count = ids.length;
  }
}

const FEW = 32;
