import { behindGate } from "../../wire/index.js";

/** The same reader, whose every method runs behind a gate. */
export function readingBehind<Reader extends object>(gate: Int32Array, reader: Reader): Reader {
  const gated = new Map<string | symbol, unknown>();
  return new Proxy(reader, {
    get(target, name) {
      const known = gated.get(name);
      if (known !== undefined) return known;
      const method: unknown = Reflect.get(target, name);
      if (typeof method !== "function") return method;
      const behind = (...args: unknown[]) => behindGate(gate, () => Reflect.apply(method, target, args) as unknown);
      gated.set(name, behind);
      return behind;
    },
  });
}
