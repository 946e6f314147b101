import { type Session, scriptedModel, type TroupeOptions } from "troupe";
import { expect, test } from "vitest";
import { plugin, startTroupe, tempFolder, until } from "../../support/runtime.js";

const PLUGINS = ["mail", "routes", "routes-too"].map((name) => ({ module: plugin(name) }));
const withRoutes = (options: TroupeOptions = {}) => startTroupe({ plugins: PLUGINS, ...options });
const from = (who: string) => ({ from: who });

type Call = readonly [method: string, ...args: unknown[]];
async function act(session: Session, calls: readonly Call[], id = "test.routes"): Promise<unknown> {
  return (await session.command(`${id}.act`, { calls } as never)).output;
}

async function heardBy(session: Session): Promise<string[]> {
  return (await session.messages())
    .filter(({ role }) => role === "user")
    .map(({ parts }) => parts.map((part) => ("text" in part ? part.text : "")).join(""));
}

test("a plugin sees which triggers there are, and a query only looks at them", async () => {
  const session = await (await withRoutes()).session("a");
  const [listed] = (await act(session, [["list"]])) as [{ value: { source: string; payloadSchema: object }[] }];
  expect(listed.value.map(({ source }) => source)).toEqual(["door.opened", "mail.received"]);
  expect(listed.value[1]).toMatchObject({ alias: "mail", event: "received", payloadSchema: { type: "object" } });
  const calls = [["list"], ["subscriptions"], ["emit", "door.opened"], ["subscribe", "door.opened"]];
  expect(await session.query("test.routes.look", { calls } as never)).toMatchObject([
    { value: [{ source: "door.opened" }, { source: "mail.received" }] },
    { value: [] },
    { missing: true },
    { missing: true },
  ]);
});

test("an event that a plugin tells of reaches its session and those made from it, and no other", async () => {
  const troupe = await withRoutes();
  const session = await troupe.session("a");
  await session.turn("hello");
  const child = await session.fork({ id: "a/child" });
  const grandchild = await child.fork({ id: "a/child/too" });
  const stranger = await troupe.session("b");
  for (const each of [session, child, grandchild, stranger]) {
    await each.turn("hello");
    await each.subscribe("mail.received");
    await each.park();
  }
  expect(await act(child, [["emit", "mail.received", from("ada")]])).toEqual([
    { value: { matched: 2, replayed: false } },
  ]);
  for (const each of [child, grandchild])
    await until(
      "it is told",
      async () => (await heardBy(each)).at(-1) === 'The event mail.received came.\n{"from":"ada"}',
    );
  expect([(await heardBy(session)).length, await heardBy(stranger)]).toEqual([2, ["hello"]]);
  const sessions = { sessions: ["a/child/too"] };
  const others = { sessions: ["a/child/too", "b"] };
  expect(
    await act(child, [
      ["emit", "mail.received", from("bob"), sessions],
      ["emit", "mail.received", from("eve"), others],
    ]),
  ).toMatchObject([{ value: { matched: 1 } }, { error: "session_not_visible" }]);
  await until(
    "it is told of the second, too",
    async () => (await heardBy(grandchild)).at(-1) === 'The event mail.received came.\n{"from":"bob"}',
  );
});

test("a plugin's key is its own in its session: it takes neither the host's nor another plugin's", async () => {
  const troupe = await withRoutes();
  const session = await troupe.session("a");
  await session.subscribe("mail.received");
  const emit = (who: string) => [["emit", "mail.received", from(who), { key: "m1" }]] as const;
  // One after another, so that what is stored of it is always the same.
  const heard = (count: number) =>
    until(`it was told of ${count}`, async () => (await heardBy(session)).length === count);
  expect(await act(session, emit("ada"))).toEqual([{ value: { matched: 1, replayed: false } }]);
  await heard(1);
  expect(await act(session, emit("bob"), "test.detours")).toEqual([{ value: { matched: 1, replayed: false } }]);
  await heard(2);
  expect(await troupe.trigger("mail.received", from("host"), { key: "m1" })).toEqual({ matched: 1, replayed: false });
  expect(await act(session, emit("ada"))).toMatchObject([{ value: { replayed: true } }]);
  expect(await act(session, emit("eve"))).toMatchObject([
    { error: "trigger_key_conflict", details: { trigger: "mail.received", key: "m1" } },
  ]);
  await heard(3);
});

test("a plugin has its session told of events, and ends neither the host's subscriptions nor another plugin's", async () => {
  const troupe = await withRoutes();
  const session = await troupe.session("a");
  await session.subscribe("mail.received", { filter: from("host") });
  const request = { filter: from("ada"), input: "Ada wrote." };
  expect(await act(session, [["subscribe", "mail.received", request]])).toMatchObject([
    { value: { key: "test.routes:mail.received", source: "mail.received", filter: from("ada") } },
  ]);
  expect(await act(session, [["unsubscribe", "mail.received"]], "test.detours")).toEqual([{ value: false }]);
  expect((await session.subscriptions()).map(({ key }) => key)).toEqual(["mail.received", "test.routes:mail.received"]);
  expect(await troupe.trigger("mail.received", from("ada"))).toMatchObject({ matched: 1 });
  await until("it is told", async () => (await heardBy(session))[0] === 'Ada wrote.\n{"from":"ada"}');
  expect(await act(session, [["unsubscribe", "mail.received"]])).toEqual([{ value: true }]);
  expect((await session.subscriptions()).map(({ key }) => key)).toEqual(["mail.received"]);
});

test("what is wrong in an event or a subscription of a plugin is said as it is to the host", async () => {
  const session = await (await withRoutes()).session("a");
  const calls: readonly Call[] = [
    ["emit", "mail.lost", {}],
    ["emit", "mail.received", { from: 7 }],
    ["emit", "mail.received", from("ada"), { keys: "k" }],
    ["emit", "mail.received", from("ada"), { key: "" }],
    ["subscribe", "mail.lost"],
    ["subscribe", "mail.received", { filters: {} }],
    ["unsubscribe", 7],
  ];
  const answers = (await act(session, calls)) as { readonly error: string }[];
  expect(answers.map(({ error }) => error)).toEqual([
    "trigger_unknown",
    "invalid_trigger",
    "invalid_trigger",
    "invalid_trigger",
    "trigger_unknown",
    "invalid_trigger",
    "invalid_trigger",
  ]);
});

test("a tool tells its own session in the middle of its turn, once, also when its worker dies behind it", async () => {
  let open: (value: string) => void = () => undefined;
  const opened = new Promise<string>((resolve) => {
    open = resolve;
  });
  const troupe = await withRoutes({
    store: { path: await tempFolder() },
    journal: true,
    sessionWorkers: 1,
    tools: { gate: { description: "Waits", inputSchema: { type: "object" }, execute: () => opened } },
    model: scriptedModel({
      turns: [
        [
          { toolCalls: [{ tool: "routes_ask", args: { calls: [["emit", "door.opened", {}]] } as never }] },
          { toolCalls: [{ tool: "gate", args: {} }] },
          { text: "done" },
        ],
        [{ text: "heard" }],
      ],
    }),
  });
  const session = await troupe.session("a");
  await session.subscribe("door.opened");
  const turn = session.turn("go");
  for await (const activity of turn) if (activity.type === "tool_call_started" && activity.toolName === "gate") break;
  await troupe.kill({ sessionWorker: 0 });
  open("now");
  expect((await turn).text).toBe("done");
  await until("it had the event's turn", async () => (await session.info()).turns === 2);
  expect(await heardBy(session)).toEqual(["go", "The event door.opened came.\n{}"]);
});
