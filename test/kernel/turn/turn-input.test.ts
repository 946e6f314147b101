import { describe, expect, it } from "vitest";
import {
  type AttachmentPolicy,
  checkTurnInput,
  DEFAULT_ATTACHMENTS,
  type InputItem,
} from "../../../src/kernel/index.js";
import { inputText, normaliseInput } from "../../../src/kernel/turn/turn-input.js";

const text = (words: string): InputItem => ({ type: "text", text: words });
const png = (bytes: number): InputItem => ({
  type: "attachment",
  source: { kind: "inline", mediaType: "image/png", bytes: new Uint8Array(bytes) },
});
const at = (url: string): InputItem => ({ type: "attachment", source: { kind: "url", mediaType: "image/png", url } });
const normalise = (items: InputItem[], policy: Partial<AttachmentPolicy> = {}) =>
  normaliseInput({ items }, { ...DEFAULT_ATTACHMENTS, ...policy });
const refusal = (why: string) =>
  expect.objectContaining({ code: "invalid_turn_input", message: `The turn's input cannot be used: ${why}.` });

describe("a turn's input", () => {
  it("may be a text", () => {
    expect(normaliseInput("hello", DEFAULT_ATTACHMENTS)).toEqual([text("hello")]);
  });

  // turn §8.26
  it("joins neighbouring text and drops what is empty", () => {
    expect(normalise([text(""), text("a"), text("b"), png(1), text(""), text("c")])).toEqual([
      text("ab"),
      png(1),
      text("c"),
    ]);
  });

  it("may be empty", () => {
    expect(normalise([])).toEqual([text("")]);
  });

  it("reads as its text", () => {
    expect(inputText([text("a"), png(1), text("b")])).toBe("ab");
  });

  it("has attachments up to the size that is allowed", () => {
    expect(normalise([png(3)], { maxBytes: 3 })).toEqual([png(3)]);
    expect(() => normalise([png(4)], { maxBytes: 3 })).toThrow(refusal("an attachment has 4 bytes; 3 are allowed"));
  });

  // turn §8.26
  it("has addresses only where the policy lets them in", () => {
    const item = at("https://a.example/x.png");
    expect(() => normalise([item])).toThrow(refusal("attachments from a.example are not allowed here"));
    expect(normalise([item], { urls: true })).toEqual([item]);
    expect(normalise([item], { urls: ["a.example"] })).toEqual([item]);
    expect(() => normalise([item], { urls: ["b.example"] })).toThrow(
      refusal("attachments from a.example are not allowed here"),
    );
    for (const wrong of ["file:///etc/passwd", "nowhere"]) {
      expect(() => normalise([at(wrong)], { urls: true })).toThrow(
        refusal("an attachment's address must be an http(s) URL"),
      );
    }
  });

  it.each(["evil-a.example", "sub.a.example", "a.example.evil", "A.example.", "xa.example"])(
    "has no address of %s when attachments of a.example are let in: a host is matched whole, not by how it begins or ends",
    (host) => {
      expect(() => normalise([at(`https://${host}/x.png`)], { urls: ["a.example"] })).toThrow(
        refusal(`attachments from ${host.toLowerCase()} are not allowed here`),
      );
    },
  );

  it("names media types and stored attachments properly", () => {
    const stored = (hash: string): InputItem => ({
      type: "attachment",
      source: { kind: "stored", mediaType: "image/png", hash, bytes: 1 },
    });
    const hash = "a".repeat(43);
    expect(normalise([stored(hash)])).toEqual([stored(hash)]);
    expect(() => normalise([stored("../x")])).toThrow(
      refusal("a stored attachment needs the hash it was stored under"),
    );
    const odd: InputItem = {
      type: "attachment",
      source: { kind: "inline", mediaType: "png", bytes: new Uint8Array() },
    };
    expect(() => normalise([odd])).toThrow(refusal('"png" is no media type'));
  });

  it("has limits", () => {
    expect(() => normalise([text("x".repeat(4 * 1024 * 1024 + 1))])).toThrow(
      refusal("it has more than 4194304 characters"),
    );
    expect(() => normalise(Array.from({ length: 257 }, () => text("a")))).toThrow(
      refusal("it has 257 items; 256 are allowed"),
    );
  });
});

describe("checkTurnInput", () => {
  it("takes a text, and items", () => {
    expect(checkTurnInput("a")).toBe("a");
    const input = { items: [text("a"), png(1), at("x")] };
    expect(checkTurnInput(input)).toBe(input);
  });

  it.each([undefined, null, 7, {}, { items: "a" }, { items: [{}] }, { items: [{ type: "text" }] }, { items: [null] }])(
    "refuses %j",
    (input) => {
      expect(() => checkTurnInput(input)).toThrow(expect.objectContaining({ code: "invalid_turn_input" }));
    },
  );
});
