import { createTroupe, type SessionOptions, type Troupe } from "troupe";
import { expect, test } from "vitest";
import { plugin, refusalOf, startTroupe, tempFolder } from "../../support/runtime.js";

const listed = async (troupe: Troupe, request: Parameters<Troupe["listSessions"]>[0]) =>
  (await troupe.listSessions(request)).sessions.map(({ id }) => id);

test("a session's tenant is given when it is made, and stored with it", async () => {
  const path = await tempFolder();
  const troupe = await createTroupe({ store: { path } });
  const session = await troupe.session("a", { tenant: "acme", metadata: { topic: "billing" } });
  expect(await session.info()).toMatchObject({ tenant: "acme", metadata: { topic: "billing" } });
  await session.turn("hello");
  await troupe.close();
  const again = await startTroupe({ store: { path } });
  // Who does not say a tenant is the host itself.
  expect(await (await again.session("a")).info()).toMatchObject({ tenant: "acme", metadata: { topic: "billing" } });
  expect(await (await again.session("a", { tenant: "acme" })).info()).toMatchObject({ tenant: "acme" });
});

test.each(["in memory", "parked", "not stored yet"])(
  "a session of another tenant is refused and stays with its owner (%s)",
  async (how) => {
    const troupe = await startTroupe();
    const session = await troupe.session("a", { tenant: "acme" });
    if (how !== "not stored yet") await session.turn("hello");
    if (how === "parked") await session.park();
    const error = await refusalOf(troupe.session("a", { tenant: "globex" }));
    expect([error.code, error.retryable, error.details]).toEqual([
      "tenant_mismatch",
      false,
      { sessionId: "a", tenant: "globex" },
    ]);
    expect((await session.turn("again")).issues).toEqual([]);
    expect(await session.info()).toMatchObject({ tenant: "acme" });
  },
);

test("a session without a tenant does not become one's by being asked for", async () => {
  const troupe = await startTroupe();
  await (await troupe.session("a")).turn("hello");
  expect((await refusalOf(troupe.session("a", { tenant: "acme" }))).code).toBe("tenant_mismatch");
});

test("forks and children are their parent's tenant's, and a fork has no metadata of its parent", async () => {
  const troupe = await startTroupe();
  const session = await troupe.session("a", { tenant: "acme", metadata: { topic: "billing" } });
  // Not stored yet: it is its tenant's all the same.
  expect(await (await session.fork()).info()).toMatchObject({ tenant: "acme" });
  await session.turn("hello");
  const info = await (await session.fork({ id: "b" })).info();
  expect([info.tenant, info.metadata]).toEqual(["acme", undefined]);
  expect((await refusalOf(troupe.session("b", { tenant: "globex" }))).code).toBe("tenant_mismatch");
});

test("sessions are listed by tenant, by the beginning of their ids, by metadata and by when they were written", async () => {
  const troupe = await startTroupe();
  const made: [string, SessionOptions][] = [
    ["chat/1", { tenant: "acme", metadata: { topic: "billing", lang: "no" } }],
    ["chat/2", { tenant: "acme", metadata: { topic: "sales" } }],
    ["mail/1", { tenant: "acme" }],
    ["chat/3", { tenant: "globex" }],
    ["chat/4", {}],
  ];
  for (const [id, options] of made) await (await troupe.session(id, options)).turn("hello");
  expect(await listed(troupe, { tenant: "acme" })).toEqual(["chat/1", "chat/2", "mail/1"]);
  expect(await listed(troupe, { prefix: "chat/" })).toEqual(["chat/1", "chat/2", "chat/3", "chat/4"]);
  expect(await listed(troupe, { tenant: "acme", prefix: "chat/" })).toEqual(["chat/1", "chat/2"]);
  expect(await listed(troupe, { metadata: { topic: "billing" } })).toEqual(["chat/1"]);
  expect(await listed(troupe, { metadata: { topic: "billing", lang: "de" } })).toEqual([]);
  expect(await listed(troupe, { tenant: "nobody" })).toEqual([]);
  const { sessions } = await troupe.listSessions({ tenant: "acme", order: "changed" });
  expect(sessions.map(({ id }) => id).sort()).toEqual(["chat/1", "chat/2", "mail/1"]);
  const times = sessions.map(({ changedAt }) => changedAt);
  expect(times).toEqual([...times].sort((a, b) => b - a));
  expect(sessions.every(({ state, tenant }) => state === "idle" && tenant === "acme")).toBe(true);
});

test("metadata an opening gives replaces what was there, and is stored before it is answered", async () => {
  const path = await tempFolder();
  const troupe = await startTroupe({ store: { path } });
  const session = await troupe.session("a", { metadata: { topic: "billing" } });
  await session.turn("hello");
  const { revision } = await session.info();
  await troupe.session("a", { metadata: { topic: "billing" } });
  expect((await session.info()).revision).toBe(revision);
  await troupe.session("a", { metadata: { topic: "sales" } });
  expect(await listed(troupe, { metadata: { topic: "sales" } })).toEqual(["a"]);
  expect(await listed(troupe, { metadata: { topic: "billing" } })).toEqual([]);
});

test("what no session can be opened with is refused, and says what can be", async () => {
  const troupe = await startTroupe();
  const refused = async (options: object) => {
    const { code, message } = await refusalOf(troupe.session("a", options as SessionOptions));
    return `${code}: ${message.split(" ")[0]}`;
  };
  for (const tenant of ["", 7, "a\u0000b", "x".repeat(129)])
    expect(await refused({ tenant })).toBe("invalid_options: tenant");
  for (const metadata of [7, [], { a: 1 }, { "": "x" }, { a: "x".repeat(257) }, { a: "\u0007" }])
    expect(await refused({ metadata })).toBe("invalid_options: metadata");
  const many = Object.fromEntries(Array.from({ length: 33 }, (_, i) => [`k${i}`, "v"]));
  expect(await refused({ metadata: many })).toBe("invalid_options: metadata");
});

test("a session that was parked before it was ever stored is still its tenant's", async () => {
  const troupe = await startTroupe({ parkAfterMs: 0, plugins: [{ module: plugin("counter") }] });
  const session = await troupe.session("a", { tenant: "acme", metadata: { topic: "x" } });
  await session.turn("hello");
  expect(await session.info()).toMatchObject({ tenant: "acme", metadata: { topic: "x" } });
});
