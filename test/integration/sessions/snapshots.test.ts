import { createTroupe, type Session, type Troupe, type TroupeOptions } from "troupe";
import { describe, expect, test } from "vitest";
import {
  fixture,
  oneToolCall,
  PATIENT,
  plugin,
  RESIDENT,
  refusalOf,
  startTroupe,
  tempFolder,
} from "../../support/runtime.js";

interface Ledger {
  readonly sessionId: string;
  readonly entries: readonly string[];
  readonly restores: readonly object[];
}

const ledgerOf = (session: Session) => session.query<Ledger>("ledger.show");
const entriesOf = async (session: Session) => (await ledgerOf(session)).entries;
const fingerprintOf = async (session: Session) => (await session.view()).pluginFingerprint;
const storedLedger = async (session: Session) => (await session.view()).components["plugin:test.ledger"];
const issuesOf = async (session: Session, input: string) => (await session.turn(input)).issues.map(({ code }) => code);
const written = async (troupe: Troupe) => (await troupe.stats()).store.records;

/** What `restore` was told of a ledger with these entries, one revision each. */
const restoredFrom = (...entries: string[]) => ({
  pluginId: "test.ledger",
  pluginVersion: "1.0.0",
  revision: String(entries.length),
  hasState: true,
  page: entries.join(","),
  other: null,
});
const RESTORED_FROM_NOTHING = {
  pluginId: "test.ledger",
  pluginVersion: "1.0.0",
  revision: "0",
  hasState: false,
  page: null,
  other: null,
};

describe.each(["worker", "inline"] as const)("a plugin that keeps its own snapshot, in the tier %s", (tier) => {
  const withLedger = (path: string, query = ""): TroupeOptions => ({
    sessionWorkers: 1,
    store: { path },
    plugins: [
      { ...PATIENT, module: plugin("idle-state"), tier },
      { ...PATIENT, module: fixture(`plugins/bookkeeper.mjs${query}`), tier },
    ],
  });

  // §15.55 §15.57
  test("has state, revision and blobs again after reopening, and so has its fork, which goes its own way", async () => {
    const path = await tempFolder();
    // Parked, it would be restored once more than it is opened here.
    const first = await createTroupe({ ...RESIDENT, ...withLedger(path), sessionWorkers: 2 });
    const parent = await first.session("parent");
    await parent.turn("add one");
    await parent.turn("add two");
    expect(await ledgerOf(parent)).toEqual({ sessionId: "parent", entries: ["one", "two"], restores: [] });
    const child = await parent.fork({ id: "child" });
    expect(await ledgerOf(child)).toEqual({
      sessionId: "child",
      entries: ["one", "two"],
      restores: [restoredFrom("one", "two")],
    });
    await child.turn("add three");
    await parent.turn("add other");
    expect(await entriesOf(child)).toEqual(["one", "two", "three"]);
    expect(await entriesOf(parent)).toEqual(["one", "two", "other"]);
    await first.close();

    const second = await startTroupe(withLedger(path));
    expect(await ledgerOf(await second.session("parent"))).toEqual({
      sessionId: "parent",
      entries: ["one", "two", "other"],
      restores: [restoredFrom("one", "two", "other")],
    });
    expect(await ledgerOf(await second.session("child"))).toEqual({
      sessionId: "child",
      entries: ["one", "two", "three"],
      restores: [restoredFrom("one", "two", "three")],
    });
  });

  // §15.56
  test("is restored from nothing in a session stored before it was there, and not at all in a new one", async () => {
    const path = await tempFolder();
    const before = await createTroupe({ store: { path }, plugins: [{ ...PATIENT, module: plugin("counter"), tier }] });
    await (await before.session("old")).turn("hi");
    await before.close();
    const troupe = await startTroupe(withLedger(path));
    expect(await ledgerOf(await troupe.session("old"))).toEqual({
      sessionId: "old",
      entries: [],
      restores: [RESTORED_FROM_NOTHING],
    });
    expect((await ledgerOf(await troupe.session("new"))).restores).toEqual([]);
  });

  // §15.56
  test("is ignored while it is away, and finds its state when it comes back", async () => {
    const path = await tempFolder();
    const counter = { ...PATIENT, module: plugin("counter"), tier };
    const options = withLedger(path);
    const both = { ...options, plugins: [counter, ...(options.plugins ?? [])], model: oneToolCall("count") };
    const first = await createTroupe(both);
    await (await first.session("s")).turn("add one");
    await first.close();
    const second = await createTroupe({ ...both, plugins: [counter] });
    const without = await second.session("s");
    expect((await without.turn("add two")).toolCalls[0]?.output).toEqual({ status: "success", value: 2 });
    expect((await refusalOf(without.query("ledger.show"))).code).toBe("operation_unknown");
    await second.close();
    const third = await startTroupe(both);
    const session = await third.session("s");
    expect((await ledgerOf(session)).restores).toEqual([restoredFrom("one")]);
    expect((await session.turn("hi")).toolCalls[0]?.output).toEqual({ status: "success", value: 3 });
  });

  test("is not captured again under the same revision, and the fingerprint stays", async () => {
    const path = await tempFolder();
    // What the plugin hides behind an old revision is in memory alone.
    const troupe = await createTroupe({ ...RESIDENT, ...withLedger(path), development: false, journal: false });
    const session = await troupe.session("s");
    expect(await issuesOf(session, "add one")).toEqual([]);
    const [hash, fingerprint, records] = [
      await storedLedger(session),
      await fingerprintOf(session),
      await written(troupe),
    ];
    expect(await issuesOf(session, "sneak quietly")).toEqual([]);
    // The head and the messages, no state.
    expect((await written(troupe)) - records).toBe(2);
    expect([await storedLedger(session), await fingerprintOf(session)]).toEqual([hash, fingerprint]);
    expect(await issuesOf(session, "add two")).toEqual([]);
    expect((await written(troupe)) - records).toBe(2 + 3);
    expect(await storedLedger(session)).not.toBe(hash);
    expect(await fingerprintOf(session)).not.toBe(fingerprint);
    await troupe.close();
    const again = await startTroupe(withLedger(path));
    expect(await entriesOf(await again.session("s"))).toEqual(["one", "quietly", "two"]);
  });

  test("is told once, in development, that its state changed under the same revision; the change is not stored", async () => {
    const path = await tempFolder();
    const troupe = await createTroupe({ ...withLedger(path), development: true });
    const session = await troupe.session("s");
    expect(await issuesOf(session, "add one")).toEqual([]);
    const hash = await storedLedger(session);
    const { issues } = await session.turn("sneak quietly");
    expect(issues).toEqual([
      {
        kind: "plugin",
        code: "plugin_state_unrevised",
        message: "The state of plugin test.ledger changed, but its snapshotRevision did not: the change is not stored.",
        pluginId: "test.ledger",
      },
    ]);
    expect(await storedLedger(session)).toBe(hash);
    await troupe.close();
    const again = await startTroupe({ ...withLedger(path), development: true });
    const reopened = await again.session("s");
    expect(await entriesOf(reopened)).toEqual(["one"]);
    expect(await issuesOf(reopened, "add two")).toEqual([]);
  });

  // §15.60
  test("keeps its last good snapshot when capturing fails, and the fingerprint does not move until it works", async () => {
    const path = await tempFolder();
    const troupe = await createTroupe(withLedger(path));
    const session = await troupe.session("s");
    await session.turn("add one");
    const [hash, fingerprint] = [await storedLedger(session), await fingerprintOf(session)];
    const { issues } = await session.turn("tear two");
    const failure = {
      code: "plugin_capture_failed",
      message: "Plugin test.ledger failed in snapshot: the ledger is torn",
    };
    expect(issues).toEqual([{ kind: "plugin", pluginId: "test.ledger", ...failure }]);
    expect([await storedLedger(session), await fingerprintOf(session)]).toEqual([hash, fingerprint]);
    // A fork would be of something that is not there.
    const records = await written(troupe);
    expect(await refusalOf(session.fork({ id: "child" }))).toMatchObject(failure);
    expect(await written(troupe)).toBe(records);
    await troupe.close();

    const second = await createTroupe(withLedger(path));
    const reopened = await second.session("s");
    expect(await entriesOf(reopened)).toEqual(["one"]);
    expect(await fingerprintOf(reopened)).toBe(fingerprint);
    expect(await issuesOf(reopened, "tear three")).toEqual(["plugin_capture_failed"]);
    // Nothing but the snapshot got better: the revision is the one that failed, and is stored now.
    expect(await issuesOf(reopened, "mend")).toEqual([]);
    expect(await storedLedger(reopened)).not.toBe(hash);
    await second.close();
    const third = await startTroupe(withLedger(path));
    expect(await entriesOf(await third.session("s"))).toEqual(["one", "three"]);
  });

  test("is not forked as it was before, also when the session is about to be parked", async () => {
    const troupe = await startTroupe({ ...withLedger(await tempFolder()), parkAfterMs: 0, maxResident: 1 });
    const session = await troupe.session("s");
    await session.turn("add one");
    await session.turn("tear two");
    // Each answer has the session parked, whose capture is under way when the fork is asked for.
    for (let n = 0; n < 20; n++) {
      await session.view();
      await expect(session.fork({ id: `child-${n}` })).rejects.toMatchObject({ code: "plugin_capture_failed" });
    }
  });

  test("gets the state of another version through migrate, or the open fails and touches nothing", async () => {
    const path = await tempFolder();
    const first = await createTroupe(withLedger(path));
    await (await first.session("s")).turn("add one");
    await first.close();
    const newer = await createTroupe(withLedger(path, "?version=2.0.0"));
    const error = await refusalOf(newer.session("s"));
    expect([error.code, error.details.pluginId]).toEqual(["plugin_state_incompatible", "test.ledger"]);
    await newer.close();
    const migrating = await createTroupe(withLedger(path, "?version=2.0.0&migrate=1"));
    const session = await migrating.session("s");
    expect((await ledgerOf(session)).restores).toEqual([{ ...restoredFrom("one"), migratedFrom: "1.0.0" }]);
    await session.turn("add two");
    await migrating.close();
    const again = await startTroupe(withLedger(path, "?version=2.0.0&migrate=1"));
    expect((await ledgerOf(await again.session("s"))).restores).toEqual([
      { ...restoredFrom("one", "two"), pluginVersion: "2.0.0" },
    ]);
  });

  test("that cannot read its snapshot fails the open and touches nothing", async () => {
    const path = await tempFolder();
    const first = await createTroupe(withLedger(path));
    await (await first.session("s")).turn("add one");
    await first.close();
    const unreadable = await createTroupe(withLedger(path, "?unreadable=1"));
    expect(await refusalOf(unreadable.session("s"))).toMatchObject({
      code: "plugin_state_failed",
      message: "Plugin test.ledger failed in restore: the ink has faded",
      details: { pluginId: "test.ledger" },
    });
    expect((await (await unreadable.session("fresh")).turn("add other")).issues).toEqual([]);
    await unreadable.close();
    const again = await startTroupe(withLedger(path));
    expect(await entriesOf(await again.session("s"))).toEqual(["one"]);
  });

  // §15.59
  test("moves the fingerprint with its revision and with nothing else, in every life of the session", async () => {
    const path = await tempFolder();
    const options = withLedger(path);
    const plugins = [...(options.plugins ?? []), { ...PATIENT, module: plugin("notes"), tier }];
    const troupe = await createTroupe({ ...options, plugins });
    const session = await troupe.session("s");
    await session.turn("add one");
    const afterAdd = await fingerprintOf(session);
    await session.turn("look around");
    await session.query("notes.list");
    expect(await fingerprintOf(session)).toBe(afterAdd);
    await session.turn("add two");
    const afterTwo = await fingerprintOf(session);
    expect(afterTwo).not.toBe(afterAdd);
    await session.command("notes.add", { text: "milk" });
    const afterNote = await fingerprintOf(session);
    expect(afterNote).not.toBe(afterTwo);
    const child = await session.fork({ id: "child" });
    expect(await fingerprintOf(child)).toBe(afterNote);
    await child.turn("add three");
    expect(await fingerprintOf(child)).not.toBe(afterNote);
    expect(await fingerprintOf(session)).toBe(afterNote);
    await troupe.close();
    const again = await createTroupe({ ...options, plugins });
    expect(await fingerprintOf(await again.session("s"))).toBe(afterNote);
    await again.close();
    // The order of the plugins is part of it.
    const turned = await startTroupe({ ...options, plugins: [...plugins].reverse() });
    expect(await fingerprintOf(await turned.session("s"))).not.toBe(afterNote);
  });
});

// §15.55
test("a plugin's thread that is replaced restores what the plugin wrote, also in a session that was new when it died", async () => {
  const troupe = await startTroupe({ sessionWorkers: 1, plugins: [{ ...PATIENT, module: plugin("bookkeeper") }] });
  const session = await troupe.session("s");
  await session.turn("add one");
  await session.turn("add two");
  await troupe.kill({ plugin: "test.ledger" });
  expect(await ledgerOf(session)).toEqual({
    sessionId: "s",
    entries: ["one", "two"],
    restores: [restoredFrom("one", "two")],
  });
  await session.turn("add three");
  expect(await entriesOf(session)).toEqual(["one", "two", "three"]);
});
