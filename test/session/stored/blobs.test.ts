import { expect, test } from "vitest";
import { attachedTo, Blobs, storedParts } from "../../../src/session/stored/blobs.js";
import { contentHash } from "../../../src/wire/index.js";

const PICTURE = new Uint8Array([1, 2, 3]);
const HASH = contentHash(PICTURE);
const EMPTY = { component: async () => undefined, componentSize: async () => undefined };
const inline = (bytes: Uint8Array) =>
  ({ type: "attachment", source: { kind: "inline", mediaType: "image/png", bytes } }) as const;

test("the same bytes are kept once, until everybody who kept them has let go", () => {
  const blobs = new Blobs(EMPTY);
  blobs.keep(PICTURE);
  expect(blobs.keep(Uint8Array.from(PICTURE))).toEqual({ hash: HASH, bytes: 3 });
  expect(blobs.encode()).toEqual([{ hash: HASH, bytes: PICTURE }]);
  blobs.release([HASH]);
  expect(blobs.dirty).toBe(true);
  blobs.release([HASH]);
  expect(blobs.dirty).toBe(false);
});

test("a blob that was written is clean, and is found in the store from then on", async () => {
  const blobs = new Blobs({
    component: async (hash) => (hash === HASH ? PICTURE : undefined),
    componentSize: async (hash) => (hash === HASH ? PICTURE.length : undefined),
  });
  blobs.keep(PICTURE);
  blobs.written(blobs.encode());
  expect([blobs.dirty, await blobs.find(HASH)]).toEqual([false, PICTURE]);
});

test("a blob that came while others were written stays dirty", () => {
  const blobs = new Blobs(EMPTY);
  blobs.keep(PICTURE);
  const writing = blobs.encode();
  const late = new Uint8Array([4]);
  blobs.keep(late);
  blobs.written(writing);
  expect(blobs.encode()).toEqual([{ hash: contentHash(late), bytes: late }]);
});

test("an input whose second attachment is missing lets go of its first", async () => {
  const blobs = new Blobs(EMPTY);
  const missing = {
    type: "attachment",
    source: { kind: "stored", mediaType: "image/png", hash: "none", bytes: 3 },
  } as const;
  await expect(storedParts(blobs, [inline(PICTURE), missing])).rejects.toMatchObject({ code: "invalid_turn_input" });
  expect(blobs.dirty).toBe(false);
});

test("an input's bytes become a reference by their hash", async () => {
  const blobs = new Blobs(EMPTY);
  const parts = await storedParts(blobs, [inline(PICTURE)]);
  expect(parts).toEqual([
    { type: "attachment", mediaType: "image/png", source: { kind: "stored", hash: HASH, bytes: 3 } },
  ]);
  expect([...attachedTo(parts)]).toEqual([HASH]);
});

test("an attachment that is no longer stored is missing by name", async () => {
  const blobs = new Blobs(EMPTY);
  const parts = await storedParts(blobs, [inline(PICTURE)]);
  blobs.release([HASH]);
  await expect(blobs.of([{ id: "m", role: "user", parts }])).rejects.toMatchObject({
    code: "attachment_missing",
    details: { hash: HASH },
  });
});
