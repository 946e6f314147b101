import { existsSync } from "node:fs";
import { rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { createTroupe, type Troupe, type TroupeOptions } from "troupe";
import { expect, test } from "vitest";
import { listening } from "../../support/listening.js";
import { PATIENT, plugin, refusalOf, startTroupe, tempFolder, until } from "../../support/runtime.js";

const withMail = (options: TroupeOptions = {}): TroupeOptions => ({
  plugins: [{ module: plugin("mail") }],
  ...options,
});
const from = (name: string) => ({ from: name });
const heardBy = async (troupe: Troupe, id: string) => {
  const messages = await (await troupe.session(id)).messages();
  return messages
    .filter(({ role }) => role === "user")
    .map(({ parts }) => parts.map((part) => ("text" in part ? part.text : "")).join(""));
};
const turns = (troupe: Troupe, id: string, count: number) => async () =>
  (await (await troupe.session(id)).info()).turns === count;

test("every session that subscribed has the event as a turn, parked ones too, and others have nothing", async () => {
  const troupe = await startTroupe(withMail());
  for (const id of ["a", "b", "c"]) await (await troupe.session(id)).turn("hello");
  await (await troupe.session("a")).subscribe("mail.received");
  const parked = await troupe.session("b");
  await parked.subscribe("mail.received", { filter: { from: "ada" }, input: "Ada wrote." });
  await parked.park();
  expect(await troupe.trigger("mail.received", from("ada"))).toEqual({ matched: 2, replayed: false });
  expect(await troupe.trigger("mail.received", from("bob"))).toEqual({ matched: 1, replayed: false });
  await until("a has both", turns(troupe, "a", 3));
  await until("b has one", turns(troupe, "b", 2));
  expect(await heardBy(troupe, "a")).toEqual([
    "hello",
    'The event mail.received came.\n{"from":"ada"}',
    'The event mail.received came.\n{"from":"bob"}',
  ]);
  expect(await heardBy(troupe, "b")).toEqual(["hello", 'Ada wrote.\n{"from":"ada"}']);
  expect(await heardBy(troupe, "c")).toEqual(["hello"]);
});

test("an event nobody subscribed to is an answer, and one for some sessions reaches only those", async () => {
  const troupe = await startTroupe(withMail());
  expect(await troupe.trigger("door.opened", {})).toEqual({ matched: 0, replayed: false });
  for (const id of ["a", "b"]) await (await troupe.session(id)).subscribe("door.opened");
  expect(await troupe.trigger("door.opened", {}, { sessions: ["b", "nobody"] })).toMatchObject({ matched: 1 });
  await until("b is told", turns(troupe, "b", 1));
  expect(await heardBy(troupe, "a")).toEqual([]);
});

test("an event that is sent twice under one key is told once, and another one under it is refused", async () => {
  const path = await tempFolder();
  const first = await createTroupe(withMail({ store: { path } }));
  await (await first.session("a")).subscribe("mail.received");
  const [one, two] = await Promise.all([
    first.trigger("mail.received", from("ada"), { key: "m1" }),
    first.trigger("mail.received", from("ada"), { key: "m1" }),
  ]);
  expect([one.replayed, two.replayed].sort()).toEqual([false, true]);
  await until("a is told", turns(first, "a", 1));
  await first.close();
  const troupe = await startTroupe(withMail({ store: { path } }));
  expect(await troupe.trigger("mail.received", from("ada"), { key: "m1" })).toEqual({ matched: 1, replayed: true });
  expect((await refusalOf(troupe.trigger("mail.received", from("bob"), { key: "m1" }))).code).toBe(
    "trigger_key_conflict",
  );
  expect(await heardBy(troupe, "a")).toHaveLength(1);
});

test("a subscription outlives the process, is one under its key, and goes with its session", async () => {
  const path = await tempFolder();
  const first = await createTroupe(withMail({ store: { path } }));
  const session = await first.session("a");
  await session.turn("hello");
  const made = await session.subscribe("mail.received", { key: "ada", filter: { from: "ada" } });
  expect(await session.subscribe("mail.received", { key: "ada", filter: { from: "ada" } })).toEqual(made);
  await session.subscribe("door.opened");
  await first.close();
  const troupe = await startTroupe(withMail({ store: { path } }));
  const again = await troupe.session("a");
  expect((await again.subscriptions()).map(({ key, source }) => [key, source])).toEqual([
    ["ada", "mail.received"],
    ["door.opened", "door.opened"],
  ]);
  expect([await again.unsubscribe("door.opened"), await again.unsubscribe("door.opened")]).toEqual([true, false]);
  expect(await troupe.trigger("door.opened", {})).toMatchObject({ matched: 0 });
  expect(await (await again.fork({ id: "b" })).subscriptions()).toEqual([]);
  await troupe.deleteSession("a");
  expect(await troupe.trigger("mail.received", from("ada"))).toMatchObject({ matched: 0 });
});

test("a payload that does not fit, a trigger nobody declares and a subscription with a mistake are refused in their words", async () => {
  const troupe = await startTroupe(withMail());
  const session = await troupe.session("a");
  const wrong = await refusalOf(troupe.trigger("mail.received", { to: "ada" }));
  expect([wrong.code, wrong.message]).toEqual([
    "invalid_trigger",
    expect.stringContaining("its payload does not fit mail.received"),
  ]);
  const unknown = await refusalOf(troupe.trigger("mail.recieved", {}));
  expect([unknown.code, unknown.message]).toEqual([
    "trigger_unknown",
    'The runtime has no trigger "mail.recieved". Did you mean "mail.received"?',
  ]);
  expect((await refusalOf(session.subscribe("mail.received", { filtr: {} } as never))).message).toContain(
    'no field "filtr"',
  );
  expect((await refusalOf(troupe.trigger("door.opened", { big: 1n }))).message).toContain("not plain JSON data");
  expect((await refusalOf(troupe.trigger("door.opened", { text: "x".repeat(300_000) }))).message).toContain(
    "262144 are allowed",
  );
});

test("a payload whose check never ends is refused, and hangs no session", async () => {
  const troupe = await startTroupe(withMail({ sessionWorkers: 1 }));
  const session = await troupe.session("a");
  const checked = refusalOf(troupe.trigger("mail.received", { from: "ada", code: `${"a".repeat(40)}!` }));
  expect((await session.turn("meanwhile")).outcome.type).toBe("finished");
  expect((await checked).code).toBe("trigger_check_timeout");
});

test("a session that was deleted while an event was on its way is told of by trigger_failed, once, and the others have it", async () => {
  const { onEvent, of, first } = listening();
  const file = join(await tempFolder(), "held");
  const holds = { module: plugin("holds-opening"), tier: "inline", deadlineMs: 600_000, options: { file } } as const;
  const troupe = await startTroupe({ plugins: [{ module: plugin("mail") }, holds], onEvent });
  for (const id of ["a", "b", "c"]) {
    const session = await troupe.session(id);
    await session.turn("hello");
    await session.subscribe("mail.received");
  }
  await (await troupe.session("a")).park();
  await writeFile(file, "");
  // All three have been looked up when the first is being told.
  const told = troupe.trigger("mail.received", from("ada"));
  await until("the first session is being opened", () => existsSync(`${file}.reached`));
  await troupe.deleteSession("b");
  await rm(file);
  expect(await told).toEqual({ matched: 2, replayed: false });
  // The same within a second is one event, which comes behind it.
  await first("trigger_failed");
  expect(of("trigger_failed")).toMatchObject([
    { trigger: "mail.received", session: "b", error: { code: "session_deleted" }, count: 1 },
  ]);
  await until("the others are told", async () => (await turns(troupe, "a", 2)()) && (await turns(troupe, "c", 2)()));
});

test("a session that cannot take an event is tried five times and told of by trigger_failed, and those behind it have the event once", async () => {
  const { onEvent, of, first } = listening();
  const troupe = await startTroupe({
    plugins: [{ module: plugin("mail") }, { module: plugin("replaces-input"), ...PATIENT }],
    onEvent,
  });
  // The hook throws at what has this word.
  await (await troupe.session("a")).subscribe("mail.received", { input: "throw" });
  await (await troupe.session("b")).subscribe("mail.received");
  expect(await troupe.trigger("mail.received", from("ada"))).toEqual({ matched: 1, replayed: false });
  expect(await first("trigger_failed")).toMatchObject({
    session: "a",
    error: { code: "plugin_prepare_turn" },
    count: 1,
  });
  await until("b is told", turns(troupe, "b", 1));
  expect([await heardBy(troupe, "a"), await heardBy(troupe, "b")]).toEqual([
    [],
    ['The event mail.received came.\n{"from":"ada"}'],
  ]);
  const tries = () => of("hook_failed").reduce((sum, { count }) => sum + count, 0);
  await until("the last try is told of", () => tries() >= 5);
  expect([tries(), of("trigger_failed").length]).toEqual([5, 1]);
});
