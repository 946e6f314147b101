import fc from "fast-check";
import { expect, test } from "vitest";
import { type Commit, type Head, type Message, nodeId, type Part, segmentId } from "../../../src/kernel/index.js";
import { type BackendAtOnce, openLmdb, openMemory, readHistory } from "../../../src/store/index.js";
import { importing, readSession, sessionFile, sessionJson } from "../../../src/store/transfer/index.js";
import { contentHash, encode } from "../../../src/wire/index.js";
import { commit, temporaryFolder, turn, UNCLAIMED } from "../commits.js";
import { gathered, readExport } from "./read-export.js";

/** What happens to a session in one revision: messages, an attachment, plugin state, an input that waits, a new frame. */
interface Step {
  readonly texts: readonly string[];
  readonly blob: Uint8Array | null;
  readonly state: unknown;
  readonly waiting: Uint8Array | null;
  readonly leavesFrame: boolean;
}

const bytes = fc.uint8Array({ minLength: 1, maxLength: 50 });
const step: fc.Arbitrary<Step> = fc.record({
  texts: fc.array(fc.string({ unit: "grapheme" }), { minLength: 1, maxLength: 3 }),
  blob: fc.option(bytes),
  state: fc.oneof(fc.jsonValue(), fc.date({ noInvalidDate: true }), bytes, fc.constant(undefined)),
  waiting: fc.option(bytes),
  leavesFrame: fc.boolean(),
});
const world = fc.record({
  parent: fc.array(step, { minLength: 1, maxLength: 4 }),
  child: fc.array(step, { maxLength: 4 }),
  forkAt: fc.nat(),
});

const named = (value: Uint8Array) => ({ hash: contentHash(value), bytes: Uint8Array.from(value) });
const attached = (hash: string, size: number): Part => ({
  type: "attachment",
  mediaType: "application/octet-stream",
  source: { kind: "stored", hash, bytes: size },
});

function grow(backend: BackendAtOnce, sessionId: string, steps: readonly Step[], begin: Partial<Head> = {}): void {
  let head: Head = { ...turn(sessionId, 0).head, leaf: null, ...begin };
  for (const { texts, blob, state, waiting, leavesFrame } of steps) {
    const revision = head.revision + 1;
    const id = segmentId(sessionId, revision);
    const messages = texts.map(
      (text, i): Message => ({ id: nodeId(id, i), role: "user", parts: [{ type: "text", text }] }),
    );
    const components: Commit["components"][number][] = [];
    const names: Record<string, string> = {};
    const keep = (value: Uint8Array, name?: string) => {
      const component = named(value);
      components.push(component);
      if (name !== undefined) names[name] = component.hash;
      return component.hash;
    };
    if (blob !== null) messages.push({ id: "m", role: "user", parts: [attached(keep(blob), blob.length)] });
    keep(encode({ version: "1.0.0", state }), "plugin:test");
    if (waiting !== null) {
      const parts = [attached(keep(waiting), waiting.length)];
      keep(encode([{ id: "i", parts }]), "inputs");
    }
    const leaves = leavesFrame && head.leaf !== null;
    const frames = [
      ...(head.frames ?? []),
      ...(leaves ? [{ frameId: `f${revision}`, reason: "test", leaf: head.leaf }] : []),
    ];
    const segment = { id, bytes: encode({ id, parent: leaves ? null : head.leaf, messages }) };
    const leaf = nodeId(id, messages.length - 1);
    const operation = `${sessionId}/${revision}`;
    const frame = leaves ? { frameId: `frame ${revision}` } : {};
    head = { ...head, ...frame, revision, leaf, operation, turnIndex: revision, frames, components: names };
    expect(
      commit(backend, { head, expectedRevision: revision - 1, epoch: UNCLAIMED, segment, components }),
    ).toMatchObject([{ revision }]);
  }
}

/** Everything a session leads to, without the names of its segments. */
function contentOf(backend: BackendAtOnce, sessionId: string) {
  const head = backend.head(sessionId) as Head;
  const said = (leaf: string | null) => readHistory(backend, leaf).map(({ role, parts }) => ({ role, parts }));
  const histories = [head.leaf, ...(head.frames ?? []).map(({ leaf }) => leaf)].map(said);
  const blobs = histories
    .flat()
    .flatMap(({ parts }) =>
      parts.flatMap((part) => (part.type === "attachment" && part.source.kind === "stored" ? [part.source.hash] : [])),
    );
  const { turnIndex, usage, components, parent, frames } = head;
  const held = [...blobs, ...Object.values(components)];
  return {
    turnIndex,
    usage,
    components,
    parent: parent?.sessionId,
    frames: frames?.map(({ frameId, reason }) => [frameId, reason]),
    histories,
    held: held.map((hash) => [hash, Buffer.from(backend.component(hash) ?? []).toString("hex")]),
    // What waits is named inside of a component.
    stored: backend.keys("components", undefined, 1_000).length,
  };
}

test.each([
  ["msgpack", sessionFile, openMemory, 150],
  ["json", sessionJson, openMemory, 150],
  ["msgpack", sessionFile, () => openLmdb(temporaryFolder()), 15],
  ["json", sessionJson, () => openLmdb(temporaryFolder()), 15],
] as const)(
  "whatever a session is made of, exported as %s it is the same session in another store, and once more (%#)",
  async (_, pieces, open, numRuns) => {
    await fc.assert(
      fc.asyncProperty(world, async ({ parent, child, forkAt }) => {
        const exportedFrom = async (backend: BackendAtOnce, id: string) =>
          gathered(pieces(backend, await readSession(backend, id)));
        const origin = openMemory();
        grow(origin, "parent", parent);
        const at = segmentId("parent", (forkAt % parent.length) + 1);
        const forked = { sessionId: "parent", leaf: nodeId(at, 0) };
        grow(
          origin,
          "child",
          [{ texts: ["first"], blob: null, state: 1, waiting: null, leavesFrame: false }, ...child],
          {
            leaf: forked.leaf,
            parent: forked,
          },
        );
        for (const id of ["parent", "child"]) {
          const exported = await exportedFrom(origin, id);
          const backend = open();
          try {
            for (const result of backend.write([...importing(readExport(exported))]))
              expect(result).toMatchObject({ ok: true });
            const content = contentOf(backend, id);
            const alone = openMemory();
            alone.write([...importing(readExport(await exportedFrom(backend, id)))]);
            expect({ ...content, stored: 0 }).toEqual({ ...contentOf(origin, id), stored: 0 });
            // Nothing more came along than belongs to it, and nothing less.
            expect(contentOf(alone, id)).toEqual(content);
          } finally {
            backend.close();
          }
        }
      }),
      { numRuns },
    );
  },
);

test("attachments of inputs that wait come along", async () => {
  const origin = openMemory();
  const waiting = new Uint8Array([1, 2, 3]);
  grow(origin, "a", [{ texts: ["hi"], blob: null, state: 1, waiting, leavesFrame: false }]);
  for (const pieces of [sessionFile, sessionJson]) {
    const backend = openMemory();
    const exported = await gathered(pieces(origin, await readSession(origin, "a")));
    backend.write([...importing(readExport(exported))]);
    expect(backend.component(named(waiting).hash)).toEqual(waiting);
  }
});
