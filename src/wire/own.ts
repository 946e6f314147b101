import { MessagePort } from "node:worker_threads";

/**
 * The language's own functions as they were when this file was loaded, which is before any plugin is imported: a plugin
 * that replaces `Map.prototype.get` or `MessagePort.prototype.postMessage` on its thread must neither see nor break what
 * goes on there for others.
 */
const { call } = Function.prototype;
const unbound = <F>(method: F): F => call.bind(method as never) as F;

export const postTo = unbound(MessagePort.prototype.postMessage) as unknown as (
  port: MessagePort,
  message: unknown,
) => void;
export const listenTo = unbound(MessagePort.prototype.on) as unknown as (
  port: MessagePort,
  event: "message" | "messageerror" | "close",
  listener: (value: never) => void,
) => void;
export const closePort = unbound(MessagePort.prototype.close) as unknown as (port: MessagePort) => void;
const promiseThen = unbound(Promise.prototype.then) as unknown as typeof whenSettled;
const NativePromise = Promise;

/** What `then` does, also for a promise of another make. */
export function whenSettled(
  promise: PromiseLike<unknown>,
  onValue: (value: unknown) => void,
  onError: (error: unknown) => void,
): void {
  if (promise instanceof NativePromise) promiseThen(promise, onValue, onError);
  else promise.then(onValue, onError);
}

/** A map whose methods nobody can replace. */
export class OwnMap<K, V> extends Map<K, V> {}
/** A set whose methods nobody can replace. */
export class OwnSet<T> extends Set<T> {}

for (const [own, original] of [
  [OwnMap.prototype, Map.prototype],
  [OwnSet.prototype, Set.prototype],
] as const) {
  const descriptors = Object.getOwnPropertyDescriptors(original);
  for (const name of Reflect.ownKeys(descriptors)) {
    if (name === "constructor") continue;
    const descriptor = Reflect.get(descriptors, name) as PropertyDescriptor;
    Object.defineProperty(own, name, {
      ...descriptor,
      configurable: false,
      ...("value" in descriptor && { writable: false }),
    });
  }
  Object.freeze(own);
}

interface Essential {
  readonly owner: object;
  readonly name: PropertyKey;
  readonly value: unknown;
}

/** Everything of the language and of Node that code on a thread cannot do without. */
function essentials(): Essential[] {
  const owners: object[] = [
    Object,
    Object.prototype,
    Function.prototype,
    Array,
    Array.prototype,
    Map.prototype,
    Set.prototype,
    WeakMap.prototype,
    Promise,
    Promise.prototype,
    String.prototype,
    Number,
    Reflect,
    JSON,
    Math,
    Atomics,
    ArrayBuffer,
    Uint8Array.prototype,
    Object.getPrototypeOf(Uint8Array.prototype) as object,
    DataView.prototype,
    Error,
    MessagePort.prototype,
  ];
  const found: Essential[] = [];
  for (const owner of owners) {
    for (const name of Reflect.ownKeys(owner)) {
      const value: unknown = Object.getOwnPropertyDescriptor(owner, name)?.value;
      if (typeof value === "function") found.push({ owner, name, value });
    }
  }
  return found;
}

/** Tells whether the functions that everything on a thread stands on are still those they were when it was made. */
export class Essentials {
  readonly #known: readonly Essential[];
  readonly #inherited = Reflect.ownKeys(Object.prototype).length;
  readonly #keysOf = Reflect.ownKeys;
  readonly #define = Reflect.defineProperty;
  readonly #delete = Reflect.deleteProperty;
  readonly #then = Promise.prototype.then;
  readonly #iterator = Array.prototype[Symbol.iterator];
  readonly #push = Array.prototype.push;

  /** `more`: functions of other objects that count, by object and name. */
  constructor(more: readonly (readonly [owner: object, name: string])[] = []) {
    const others = more.map(([owner, name]) => ({ owner, name, value: Reflect.get(owner, name) as unknown }));
    this.#known = [...essentials(), ...others];
  }

  /**
   * Are those changed without which answers would be wrong, or never come? Asked before every answer, so that the call
   * that changed them is known.
   */
  get vitalAreChanged(): boolean {
    return (
      Promise.prototype.then !== this.#then ||
      Array.prototype[Symbol.iterator] !== this.#iterator ||
      Array.prototype.push !== this.#push
    );
  }

  /** Is any? Takes some microseconds. */
  get areChanged(): boolean {
    if (this.#keysOf(Object.prototype).length !== this.#inherited) return true;
    for (let n = 0; n < this.#known.length; n++) {
      const { owner, name, value } = this.#known[n] as Essential;
      if ((owner as Record<PropertyKey, unknown>)[name] !== value) return true;
    }
    return false;
  }

  /** Puts those back that were replaced, as far as they can be, so that what there is to say can still be said. */
  restore(): void {
    for (let n = 0; n < this.#known.length; n++) {
      const { owner, name, value } = this.#known[n] as Essential;
      if ((owner as Record<PropertyKey, unknown>)[name] === value) continue;
      this.#define(owner, name, { value, configurable: true, enumerable: false, writable: true });
    }
    const inherited = this.#keysOf(Object.prototype);
    for (let n = this.#inherited; n < inherited.length; n++)
      this.#delete(Object.prototype, inherited[n] as PropertyKey);
  }
}
