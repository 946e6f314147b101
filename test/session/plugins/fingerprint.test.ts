import { describe, expect, test } from "vitest";
import { definePlugin, snapshotFingerprint, snapshotIsCurrent } from "../../../src/plugin/index.js";
import { inlineSession } from "../inline-session.js";

/** Keeps its own snapshot under a revision it counts. */
const revised = definePlugin({
  id: "revised",
  version: "1.0.0",
  register: (registrar) => {
    let revision = 41n;
    let words: string[] = [];
    registrar.hook("beforeTurn", ({ input }) => {
      words.push(input);
      if (input !== "quietly") revision++;
    });
    return {
      snapshotRevision: () => revision,
      snapshot: () => words,
      restore: (meta) => {
        revision = meta.revision;
        words = [...(meta.state as string[])];
      },
    };
  },
});

const declared = definePlugin({
  id: "declared",
  version: "2.0.0",
  state: () => ({ last: "" }),
  hooks: {
    beforeTurn: ({ input, state }) => {
      state.last = input;
    },
  },
});

const entriesOf = (revisions: readonly { id: string; version: string; revision: bigint }[]) =>
  Object.fromEntries(revisions.map(({ id, version, revision }) => [id, { version, revision }]));

describe("the revisions of a session's plugins", () => {
  // §15.58 §15.59
  test("say whether a snapshot is current and make the fingerprint: counted by the plugin, or taken from the content", async () => {
    const { hooks, begin } = await inlineSession([revised, declared]);
    const untouched = hooks.revisions();
    expect(untouched.map(({ id, version, revision }) => [id, version, revision])).toEqual([
      ["revised", "1.0.0", 0n],
      ["declared", "2.0.0", 0n],
      ["troupe.standard", "1.0.0", 0n],
    ]);
    expect(hooks.fingerprint()).toBe(snapshotFingerprint(untouched));

    await begin("one");
    await hooks.capture();
    const first = hooks.revisions();
    expect(first[0]?.revision).toBe(42n);
    expect(snapshotIsCurrent(entriesOf(untouched), first)).toBe(false);
    expect(snapshotIsCurrent(entriesOf(first), hooks.revisions())).toBe(true);
    const fingerprint = hooks.fingerprint();

    await begin("quietly");
    await hooks.capture();
    const second = hooks.revisions();
    expect(second[0]).toEqual(first[0]);
    expect(second[1]?.revision).not.toBe(first[1]?.revision);
    expect(snapshotIsCurrent(entriesOf(first), second)).toBe(false);
    expect(hooks.fingerprint()).not.toBe(fingerprint);

    await begin("one");
    await hooks.capture();
    expect(hooks.revisions()[0]?.revision).toBe(43n);
    // The content it had before has the revision it had before.
    expect(hooks.revisions()[1]).toEqual(first[1]);
  });

  // §15.59
  test("are the same in another life of the session, and the fingerprint with them", async () => {
    const { hooks, begin } = await inlineSession([revised, declared]);
    await begin("one");
    await hooks.capture();
    const captured = hooks.slots.map((slot) => slot?.captured);
    const again = await inlineSession([revised, declared], { captured });
    expect(again.hooks.fingerprint()).toBe(hooks.fingerprint());
    await again.begin("quietly");
    await again.hooks.capture();
    // The plugin's count stands still, the declared state does not.
    expect(again.hooks.revisions()[0]).toEqual(hooks.revisions()[0]);
    expect(again.hooks.revisions()[1]).not.toEqual(hooks.revisions()[1]);
  });
});
