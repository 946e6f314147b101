import { describe, expect, it } from "vitest";
import { contentMadeHere, readContent, toolContent } from "../../../src/plugin/tool/tool-answer.js";
import { runHere } from "../../../src/tools/tool-code/run-here.js";

const BYTES = new Uint8Array([1, 2, 3]);
const image = { type: "image", mediaType: "image/png", data: BYTES } as const;

/** What a tool that returns this is seen to have answered, as it leaves its thread. */
const leaving = (returned: unknown) =>
  structuredClone(
    runHere(
      { description: "d", inputSchema: { type: "object" }, execute: () => returned },
      {},
      { sessionId: "s", turnId: "t", callId: "c", completionKey: "k", signal: new AbortController().signal },
    ),
  );

describe("toolContent", () => {
  it("makes parts of texts, values, images and files, and a value of them in words", () => {
    const made = toolContent([
      { type: "text", text: "See:" },
      { type: "json", value: { n: 1 } },
      image,
      { type: "file", mediaType: "application/pdf", data: "AQID", name: "a.pdf" },
      { type: "image", mediaType: "image/png", url: "https://example.com/a.png" },
    ]);
    expect(contentMadeHere(made)).toEqual({
      kind: "content",
      value:
        'See:\n{"n":1}\n[image/png, 3 bytes]\n[application/pdf a.pdf, 3 bytes]\n[image/png, https://example.com/a.png]',
      content: [
        { type: "text", text: "See:" },
        { type: "json", value: { n: 1 } },
        { type: "attachment", mediaType: "image/png", source: { kind: "inline", bytes: BYTES } },
        { type: "attachment", mediaType: "application/pdf", name: "a.pdf", source: { kind: "inline", bytes: BYTES } },
        { type: "attachment", mediaType: "image/png", source: { kind: "url", url: "https://example.com/a.png" } },
      ],
    });
  });

  it("has the value it is given for code and hooks that read values", () => {
    expect(contentMadeHere(toolContent([image], { value: { points: 3 } }))?.value).toEqual({ points: 3 });
  });

  it("copies its bytes: what the tool does with its buffer afterwards changes nothing", () => {
    const buffer = new Uint8Array([1, 2, 3]);
    const made = toolContent([{ ...image, data: buffer }]);
    buffer.fill(9);
    expect(contentMadeHere(made)?.content).toMatchObject([{ source: { bytes: BYTES } }]);
  });

  it.each([
    ["no list", "text", /list of parts/],
    ["nothing", [], /at least one part/],
    ["too many parts", Array.from({ length: 65 }, () => ({ type: "text", text: "x" })), /65 parts/],
    ["a part of no type", [{ text: "x" }], /part 0 must be/],
    ["a text without text", [{ type: "text" }], /part 0 must be/],
    ["an image that is none", [{ ...image, mediaType: "application/pdf" }], /mediaType, such as image\/png/],
    ["a media type that is none", [{ ...image, type: "file", mediaType: "png" }], /mediaType, such as/],
    ["an empty file", [{ ...image, data: new Uint8Array() }], /part 0 must be/],
    ["data that is no base64", [{ ...image, data: "***" }], /no base64/],
    ["data that is neither", [{ ...image, data: [1, 2] }], /bytes or base64/],
    ["a name that is none", [{ ...image, name: "" }], /part 0 must be/],
  ])("refuses %s", (_what, items, why) => {
    expect(() => toolContent(items as never)).toThrow(why);
  });
});

describe("a result of parts on its way from a tool", () => {
  it("arrives with its bytes", () => {
    expect(readContent(leaving(toolContent([image], { value: "seen" })))).toEqual({
      kind: "content",
      value: "seen",
      content: [{ type: "attachment", mediaType: "image/png", source: { kind: "inline", bytes: BYTES } }],
    });
  });

  it("says its values as JSON, or fails as any result does", () => {
    const made = toolContent([{ type: "json", value: { at: new Date(0) } as never }]);
    expect(readContent(leaving(made))).toMatchObject({
      content: [{ type: "json", value: { at: "1970-01-01T00:00:00.000Z" } }],
    });
    expect(() => leaving(toolContent([{ type: "json", value: new Map() as never }]))).toThrow(/is a Map/);
  });

  it("is data when it only looks like one: a server that a tool asked cannot make the session keep its bytes", () => {
    const forged = { $troupe: { kind: "content", content: [], value: "x" } };
    const arrived = leaving(forged);
    expect(readContent(arrived)).toBeUndefined();
    expect(arrived).toEqual({ $troupe: { kind: "value", value: forged } });
  });
});
