import { createTroupe, pendingTool, type Session, switchFrame, type Troupe, type TroupeOptions } from "troupe";
import { expect, test } from "vitest";
import { told } from "../../support/asking.js";
import {
  EMPTY_OBJECT,
  fixture,
  PATIENT,
  plugin,
  RESIDENT,
  refusalOf,
  tempFolder,
  until,
} from "../../support/runtime.js";
import { storedRows } from "../../support/stored-rows.js";

const PARKED = { parkAfterMs: 0, maxResident: 1 } as const;

test.each([
  ["turns, tools, state, inputs, forks and settings", everyday],
  ["code, its state and its frames", calculating],
] as const)(
  "%s leave the same rows whether sessions stay in memory or are parked after every message",
  async (_, work) => {
    const kept = await work(RESIDENT);
    expect(Object.keys(kept.heads ?? {}).length).toBeGreaterThan(2);
    expect(Object.keys(kept.journal ?? {}).length).toBeGreaterThan(0);
    expect(await work(PARKED)).toEqual(kept);
  },
);

const cell = (...lines: string[]) => `\`\`\`calc\n${lines.join("\n")}\n\`\`\``;
const message = (text: string) => ({ kind: "message", message: { role: "user", text } }) as const;

/** Begins a turn that waits for an answer, and closes the runtime: what it has done so far stays in the journal. */
async function closeInTurn(troupe: Troupe, session: Session, input: string, waits: () => boolean): Promise<void> {
  const turn = session.turn(input).then(
    () => "ended",
    () => "left",
  );
  await until("its tool waits", waits);
  await troupe.close();
  expect(await turn).toBe("left");
}

async function everyday(residency: Partial<TroupeOptions>) {
  const path = await tempFolder();
  const sessions = new Map<string, Session>();
  let waiting = false;
  const troupe = await createTroupe({
    ...residency,
    sessionWorkers: 1,
    drainMs: 1,
    store: { path },
    model: fixture("models/told.mjs"),
    plugins: ["counter", "notes", "asks-host", "bookkeeper", "late"].map((name, place) => ({
      ...PATIENT,
      module: plugin(name),
      options: {},
      tier: place % 2 === 0 ? "worker" : "inline",
    })),
    tools: {
      speak: {
        description: "Says something into the turn that runs it",
        inputSchema: EMPTY_OBJECT,
        execute: async (_, { sessionId }) => {
          await sessions.get(sessionId)?.steer("And in Celsius.", { key: "celsius" });
          return "said";
        },
      },
      leave: {
        description: "Leaves for another frame",
        inputSchema: EMPTY_OBJECT,
        execute: () => switchFrame({ frameId: "second", task: "Go on." }),
      },
      wait: {
        description: "Is answered by somebody else",
        inputSchema: EMPTY_OBJECT,
        execute: () => {
          waiting = true;
          return pendingTool();
        },
      },
    },
  });
  const a = await troupe.session("a");
  const b = await troupe.session("b", { pluginOptions: { "test.told": { mood: "calm" } } });
  for (const session of [a, b]) {
    sessions.set(session.id, session);
    await session.turn(told({ call: "count" }, { call: "weather" }, { say: "Sunny." }));
    await session.turn("add one");
    await session.configure({ instructions: `You are ${session.id}.`, metadata: { colour: "red" } });
    await session.append({ nodes: [message("By the way."), { kind: "protocol_event", event: 1 }] });
    await session.command("notes.add", { text: "milk" }, { key: "milk" });
    await session.command("notes.add", { text: "milk" }, { key: "milk" });
    await session.query("notes.list");
    await session.command("host.ask", { calls: [["setToolMembership", session.id, ["weather"], false]] });
    const source = { kind: "inline", mediaType: "text/plain", bytes: new TextEncoder().encode("attached") } as const;
    await session.turn({
      items: [
        { type: "text", text: "Read this." },
        { type: "attachment", source },
      ],
    });
    await session.query("late.ask");
    const refused = { ...source, bytes: new TextEncoder().encode("never read") };
    const items = [{ type: "text", text: "refuse this" } as const, { type: "attachment", source: refused } as const];
    expect((await refusalOf(session.turn({ items }))).code).toBe("plugin_prepare_turn");
    await session.setBudget({ maxTokens: 1_000_000 });
    for (let n = 0; n < 2; n++) await session.turn("Once only.", { key: "once" });
    await session.turn(told({ call: "speak" }, { say: "It is 4 °C." }, { say: "As I said." }));
    const { turns } = await session.info();
    await session.enqueue("In a while.", { key: "while" });
    await until("it was taken", async () => (await session.info()).turns === turns + 1);
    await session.turn(told({ call: "leave" }));
    await session.close();
    await session.turn("add two");
  }
  const child = await a.fork({ id: "a/child", authority: { hiddenTools: ["count"] } });
  await child.turn(told({ call: "count" }, { say: "It is gone." }));
  await b.turn("add three");
  await child.append({ nodes: [message("Still here?")] });
  const [past] = (await b.tree()).filter(({ role }) => role === "assistant");
  const branch = await b.fork({ id: "b/branch", pluginState: "fresh", ...(past && { at: past.node }) });
  await branch.turn("add four");
  await a.command("host.ask", { calls: [["createSession", { sessionId: "a/made", start: { kind: "empty" } }]] });
  await (await troupe.session("a/made")).turn("Hello.");
  expect((await troupe.stats()).sessions.parked > 0).toBe(residency === PARKED);
  await closeInTurn(troupe, a, told({ call: "weather" }, { call: "count" }, { call: "wait" }), () => waiting);
  return storedRows(path);
}

async function calculating(residency: Partial<TroupeOptions>) {
  const path = await tempFolder();
  let waiting = false;
  const wait = {
    description: "Is answered by somebody else",
    inputSchema: EMPTY_OBJECT,
    execute: () => {
      waiting = true;
      return pendingTool();
    },
  };
  const troupe = await createTroupe({
    ...residency,
    sessionWorkers: 1,
    drainMs: 1,
    store: { path },
    model: fixture("models/says-input-then-prompt.mjs"),
    protocol: { module: plugin("calc"), options: { extensible: true } },
    tools: { wait },
  });
  const session = await troupe.session("s", { pluginOptions: { "test.calc": { precision: 4 } } });
  await session.turn(cell("x = 1", "print x"));
  await session.extend({ name: "gravity", value: 10 });
  await session.turn(cell("y = x + gravity", "print y"));
  const child = await session.fork({ id: "child" });
  await session.turn(cell("x = x + 1"));
  await child.turn(cell("x = x + 5", "finish x"));
  await session.turn("switch second");
  await session.turn(cell("print x"));
  await session.append({ nodes: [message("From outside.")] });
  await session.command("calc.child", { sessionId: "made", start: { kind: "empty" } });
  await (await troupe.session("made")).turn(cell("z = 3"));
  expect((await troupe.stats()).sessions.parked > 0).toBe(residency === PARKED);
  await closeInTurn(troupe, session, cell("x = x + 1", "call wait"), () => waiting);
  return storedRows(path);
}
