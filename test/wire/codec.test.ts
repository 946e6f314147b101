import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { TroupeError } from "../../src/kernel/index.js";
import { contentHash, decode, encode, encodeState } from "../../src/wire/index.js";

const bytes = (...values: number[]) => new Uint8Array(values);
/** A record of this release with any body: "T", "p", version 1. */
const record = (...body: number[]) => bytes(0x54, 0x70, 1, ...body);

function codeOf(act: () => unknown): string {
  try {
    act();
  } catch (error) {
    if (error instanceof TroupeError) return error.code;
    throw error;
  }
  return "none";
}

const refusal = (code: string, message: string) => expect.objectContaining({ code, message });

/** What a record may hold. Minus zero is written as zero, and `__proto__` as a key is never taken as it is. */
const plain = fc.letrec((tie) => ({
  value: fc.oneof(
    { depthSize: "small", withCrossShrink: true },
    fc.constantFrom(null, undefined, true, false, Number.NaN, Number.POSITIVE_INFINITY, Number.NEGATIVE_INFINITY),
    fc.integer(),
    fc.maxSafeInteger(),
    fc.double().map((value) => (Object.is(value, -0) ? 0 : value)),
    fc.bigInt({ min: -(2n ** 63n), max: 2n ** 64n - 1n }),
    fc.string({ unit: "grapheme", maxLength: 300 }),
    fc.date({ noInvalidDate: false }),
    fc.uint8Array({ maxLength: 300 }),
    fc.array(tie("value")),
    fc.dictionary(
      fc.string().filter((key) => key !== "__proto__"),
      tie("value"),
      { noNullPrototype: true },
    ),
  ),
})).value;

describe("encode and decode", () => {
  it("give every plain value back as it was", () => {
    fc.assert(
      fc.property(plain, (value) => {
        expect(decode(encode(value))).toStrictEqual(value);
        expect(decode(encodeState(value, "It"))).toStrictEqual(value);
      }),
    );
  });

  it("give one of each type back", () => {
    const value = {
      nothing: null,
      missing: undefined,
      yes: true,
      small: 7,
      negative: -1,
      fraction: 0.1,
      big: 2 ** 53 - 1,
      huge: 18_446_744_073_709_551_615n,
      text: "naïve 🙂",
      when: new Date("2024-02-29T12:00:00.123Z"),
      bytes: bytes(1, 2, 3),
      list: [1, [2, [3]], {}],
      keys: { constructor: 1, toJSON: 2, "": 3 },
    };
    expect(decode(encode(value))).toStrictEqual(value);
  });

  it("write two bytes of magic, one of version, then msgpack", () => {
    expect([...encode(["a", 1])]).toEqual([0x54, 0x70, 1, 0x92, 0xa1, 0x61, 0x01]);
  });

  it("give bytes that own their memory", () => {
    expect(encode(["a", 1]).buffer.byteLength).toBe(7);
  });

  it("read records out of a larger buffer", () => {
    const large = Buffer.concat([Buffer.from([9, 9]), encode(["x"]), Buffer.from([9])]);
    expect(decode(large.subarray(2, -1))).toEqual(["x"]);
  });

  it("give byte arrays that share nothing with the record, and are no Buffers", () => {
    const encoded = encode({ seen: bytes(1, 2, 3) });
    const before = contentHash(encoded);
    const { seen } = decode<{ seen: Uint8Array }>(Buffer.from(encoded.buffer));
    expect(seen.constructor).toBe(Uint8Array);
    seen[0] = 99;
    expect(contentHash(encoded)).toBe(before);
  });

  it("turn minus zero into zero, as JSON does", () => {
    expect(Object.is(decode(encode(-0)), 0)).toBe(true);
  });

  it("never let a __proto__ key reach a prototype", () => {
    const decoded = decode<object>(encode(JSON.parse('{"__proto__":{"polluted":true}}')));
    expect(Object.getPrototypeOf(decoded)).toBe(Object.prototype);
    expect(decoded).not.toHaveProperty("polluted");
  });

  it("refuse to write what could not be read back", () => {
    const nested = (levels: number) => {
      let value: unknown = "leaf";
      for (let i = 0; i < levels; i++) value = [value];
      return value;
    };
    expect(decode(encode(nested(128)))).toEqual(nested(128));
    expect(() => encode(nested(129))).toThrow(
      refusal("unserialisable", "A record cannot be written: it is nested deeper than 128 levels."),
    );
    expect(codeOf(() => encode(nested(100_000)))).toBe("unserialisable");
    expect(codeOf(() => encode(2n ** 64n))).toBe("unserialisable");
    expect(() => encode(new Uint8Array(64 * 1024 * 1024))).toThrow(
      refusal("unserialisable", "A record cannot be written: it has 67108872 bytes, more than the 67108864 allowed."),
    );
  });

  it("go on after a value that could not be written", () => {
    expect(codeOf(() => encode(["text", { deep: 2n ** 64n }]))).toBe("unserialisable");
    expect(decode(encode(["text", { deep: 1 }]))).toEqual(["text", { deep: 1 }]);
  });
});

describe("decode of foreign bytes", () => {
  it("refuses what is not a Troupe record", () => {
    for (const foreign of [bytes(), bytes(0x54), bytes(0x54, 0x70, 1), bytes(0x7b, 0x7d, 1, 1), Buffer.from("{}  ")]) {
      expect(() => decode(foreign)).toThrow(
        refusal("snapshot_damaged", "A stored record cannot be read: it is not a Troupe record."),
      );
    }
  });

  it("names the version it does not know", () => {
    expect(() => decode(bytes(0x54, 0x70, 2, 0xc0))).toThrow(
      expect.objectContaining({
        code: "snapshot_version_unknown",
        message: "This record has format version 2; this release reads version 1.",
        details: { found: 2, known: 1 },
      }),
    );
  });

  it("refuses every truncation of a record", () => {
    fc.assert(
      fc.property(plain, (value) => {
        const encoded = encode(value);
        for (let length = 0; length < encoded.length; length++) {
          expect(codeOf(() => decode(encoded.subarray(0, length)))).toBe("snapshot_damaged");
        }
      }),
      { numRuns: 30 },
    );
  });

  it("refuses bytes behind the end", () => {
    fc.assert(
      fc.property(plain, fc.uint8Array({ minLength: 1, maxLength: 20 }), (value, tail) => {
        expect(() => decode(Buffer.concat([encode(value), tail]))).toThrow(
          refusal("snapshot_damaged", "A stored record cannot be read: it has bytes behind its end."),
        );
      }),
    );
  });

  it("gives a value or snapshot_damaged for any bytes at all", () => {
    fc.assert(
      fc.property(fc.uint8Array({ minLength: 1, maxLength: 200 }), (body) => {
        expect(["none", "snapshot_damaged"]).toContain(codeOf(() => decode(record(...body))));
      }),
      { numRuns: 2_000 },
    );
  });

  it("gives a value, snapshot_damaged or an unknown version for any change of a record", () => {
    const change = fc.tuple(fc.nat(), fc.nat(255));
    fc.assert(
      fc.property(plain, fc.array(change, { minLength: 1, maxLength: 4 }), (value, changes) => {
        const encoded = encode(value);
        for (const [at, byte] of changes) encoded[at % encoded.length] = byte;
        expect(["none", "snapshot_damaged", "snapshot_version_unknown"]).toContain(codeOf(() => decode(encoded)));
      }),
      { numRuns: 1_000 },
    );
  });

  it("reads the next record as if nothing had happened", () => {
    const good = encode({ list: [64, 65, 127], text: "fine" });
    fc.assert(
      fc.property(fc.uint8Array({ minLength: 1, maxLength: 60 }), (body) => {
        codeOf(() => decode(record(...body)));
        expect(decode(good)).toEqual({ list: [64, 65, 127], text: "fine" });
      }),
      { numRuns: 500 },
    );
  });

  it("refuses records larger than allowed before it reads them", () => {
    expect(() => decode(new Uint8Array(67_108_865))).toThrow(
      refusal(
        "snapshot_damaged",
        "A stored record cannot be read: it has 67108865 bytes, more than the 67108864 allowed.",
      ),
    );
  });

  it("refuses records nested deeper than allowed", () => {
    const nested = (levels: number) => Buffer.concat([record(), Buffer.alloc(levels, 0x91), bytes(0xc0)]);
    const tooDeep = refusal("snapshot_damaged", "A stored record cannot be read: it is nested deeper than 128 levels.");
    expect(decode(nested(128))).toHaveLength(1);
    expect(() => decode(nested(129))).toThrow(tooDeep);
    expect(codeOf(() => decode(Buffer.concat([record(), Buffer.alloc(1_000_000, 0x91), bytes(0xc0)])))).toBe(
      "snapshot_damaged",
    );
  });

  it.each([
    ["an array of 4 billion values", [0xdd, 0xff, 0xff, 0xff, 0xff], "it claims more values than it has bytes"],
    ["a map of 4 billion keys", [0xdf, 0xff, 0xff, 0xff, 0xff], "it claims more values than it has bytes"],
    ["a short array of 65,535 values", [0xdc, 0xff, 0xff, 0xc0], "it claims more values than it has bytes"],
    ["a short map of 65,535 keys", [0xde, 0xff, 0xff, 0xc0], "it claims more values than it has bytes"],
    ["a small map with more keys than bytes", [0x8f, 0xc0], "it claims more values than it has bytes"],
    ["a string of 4 GB", [0xdb, 0xff, 0xff, 0xff, 0xff, 0x61], "it ends too early"],
    ["4 GB of bytes", [0xc6, 0xff, 0xff, 0xff, 0xff, 0x61], "it ends too early"],
    ["an extension of 4 GB", [0xc9, 0xff, 0xff, 0xff, 0xff, 0xff], "it ends too early"],
    ["a length that is cut off", [0xdb, 0xff], "it ends too early"],
    ["a number that is cut off", [0xcb, 0, 0], "it ends too early"],
    ["the one token msgpack never uses", [0xc1], "it contains the unknown token 0xc1"],
    ["a record definition", [0xd4, 0x72, 0x40], "it contains the unknown extension 114"],
    ["a pointer to an earlier value", [0xd6, 0x70, 0, 0, 0, 1], "it contains the unknown extension 112"],
    ["a regular expression", [0xd4, 0x78, 0, 0x92, 0xa1, 0x61, 0xa0], "it contains the unknown extension 120"],
  ])("refuses %s", (_, body, why) => {
    expect(() => decode(record(...body))).toThrow(
      refusal("snapshot_damaged", `A stored record cannot be read: ${why}.`),
    );
  });
});

describe("encodeState", () => {
  class Basket {
    items = [];
  }
  const cyclic: Record<string, unknown> = {};
  cyclic.self = cyclic;

  it.each<[string, unknown, string]>([
    ["a function", { on: { change: () => {} } }, "on.change is a function"],
    ["a symbol", [1, Symbol("s")], "[1] is a symbol"],
    ["a Map", { seen: [new Map()] }, "seen[0] is a Map; use plain objects, arrays, dates and byte arrays"],
    ["a Set", { seen: new Set() }, "seen is a Set; use plain objects, arrays, dates and byte arrays"],
    ["a class instance", new Basket(), "the value is a Basket; use plain objects, arrays, dates and byte arrays"],
    [
      "another typed array",
      new Float32Array(1),
      "the value is a Float32Array; use plain objects, arrays, dates and byte arrays",
    ],
    ["a bigint msgpack cannot hold", { id: 2n ** 64n }, "id is a bigint of more than 64 bits"],
    ["a key that would be renamed", { a: JSON.parse('{"__proto__":1}') }, "a has a key __proto__"],
    [
      "a value that cannot be read",
      {
        get secret() {
          throw new Error("not yours");
        },
      },
      "not yours",
    ],
  ])("refuses %s and says where it is", (_, state, why) => {
    expect(() => encodeState(state, "The state of plugin acme")).toThrow(
      refusal("unserialisable", `The state of plugin acme cannot be saved: ${why}.`),
    );
  });

  it("refuses a cycle and says where it is", () => {
    expect(() => encodeState({ a: cyclic }, "It")).toThrow(
      refusal(
        "unserialisable",
        `It cannot be saved: a${".self".repeat(128)} is nested deeper than 128 levels or refers to itself.`,
      ),
    );
  });

  it("accepts exactly the depth that can be read back", () => {
    const nested = (levels: number) => {
      let value: unknown = 1;
      for (let i = 0; i < levels; i++) value = { a: value };
      return value;
    };
    expect(decode(encodeState(nested(128), "It"))).toEqual(nested(128));
    expect(codeOf(() => encodeState(nested(129), "It"))).toBe("unserialisable");
  });

  it("replaces half of a surrogate pair in the value too, so that who goes on with it has what was saved", () => {
    const state = { text: "a\ud83d", list: ["\udc00"] };
    expect(decode(encodeState(state, "It"))).toEqual({ text: "a\ufffd", list: ["\ufffd"] });
    expect(state).toEqual({ text: "a\ufffd", list: ["\ufffd"] });
    expect(decode(encodeState("\ud83d", "It"))).toBe("\ufffd");
  });

  it.each([
    ["text", { a: Object.freeze({ text: "\ud83d" }) }, "a.text is text with half of a surrogate pair"],
    ["a key", { a: { "\ud83d": 1 } }, "a has a key with half of a surrogate pair"],
  ])("refuses half of a surrogate pair in %s that cannot be changed", (_, state, why) => {
    expect(() => encodeState(state, "It")).toThrow(why);
  });

  it("accepts an object without a prototype", () => {
    expect(decode(encodeState(Object.assign(Object.create(null), { a: 1 }), "It"))).toEqual({ a: 1 });
  });
});

describe("contentHash", () => {
  it("is the SHA-256 of the bytes, and the same on every machine", () => {
    expect(contentHash(encode(["a", 1]))).toBe("2zyVOty-EJ3evbMS-LD1uyfbqsazIHbBKmvCgR9HLyo");
    expect(contentHash(bytes())).toBe("47DEQpj8HBSa-_TImW-5JCeuQeRkm5NMpJWZG3hSuFU");
  });

  it("is the same for the same content and another for other content", () => {
    expect(contentHash(encode({ a: 1, b: [2] }))).toBe(contentHash(encode({ a: 1, b: [2] })));
    expect(contentHash(encode({ a: 1 }))).not.toBe(contentHash(encode({ a: 2 })));
  });
});
