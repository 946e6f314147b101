import { readdir, readFile } from "node:fs/promises";
import { join } from "node:path";
import {
  createTroupe,
  exportSession,
  pendingTool,
  type Session,
  scriptedModel,
  type Troupe,
  type TroupeOptions,
} from "troupe";
import { describe, expect, onTestFinished, test } from "vitest";
import { Elsewhere } from "../../support/elsewhere.js";
import {
  collect,
  EMPTY_OBJECT,
  fixture,
  PATIENT,
  plugin,
  refusalOf,
  startTroupe,
  tempFolder,
  until,
} from "../../support/runtime.js";

const CARD = "4000123412341234";
const REDACTS = { module: plugin("replaces-input"), ...PATIENT };
const ECHO = scriptedModel({ turns: [[{ text: "{input}" }]] });
const asksTool = scriptedModel({
  turns: [[{ toolCalls: [{ tool: "ask" }] }, { text: "{input}" }], ...Array(5).fill([{ text: "{input}" }])],
});

/** Everything in a store's folder, as it lies on the disk. */
async function bytesOf(path: string): Promise<Buffer> {
  const files = await readdir(path, { recursive: true, withFileTypes: true });
  const whole = files.filter((file) => file.isFile()).map((file) => readFile(join(file.parentPath, file.name)));
  return Buffer.concat(await Promise.all(whole));
}
const holdsCard = async (path: string) => (await bytesOf(path)).includes(CARD);
const askedOf = (session: Session) => session.query<string[]>("asked");
const said = async (session: Session) =>
  (await session.messages()).flatMap(({ parts }) => parts.map((part) => (part.type === "text" ? part.text : "")));

const counts = async () =>
  new URL(`${fixture("models/counts.mjs")}?file=${encodeURIComponent(join(await tempFolder(), "calls"))}`);

async function started(options: TroupeOptions = {}) {
  const path = await tempFolder();
  const troupe = await startTroupe({ model: ECHO, store: { path }, plugins: [REDACTS], sessionWorkers: 1, ...options });
  return { troupe, path, session: await troupe.session("s") };
}

/** A turn, one said into it, one that waits for the next, and a keyed one; then all of it is closed. */
async function asksEverything(troupe: Troupe, path: string) {
  const session = await troupe.session("s");
  const turn = session.turn(`Pay with ${CARD}.`, { key: "first" });
  for await (const activity of turn)
    if (activity.type === "tool_call_pending") {
      await session.steer(`Or with ${CARD}, said meanwhile.`);
      await session.enqueue(`And with ${CARD} afterwards.`, { key: "next" });
      await troupe.completeTool(activity.key, { value: "yes" });
    }
  await until("the next turn is stored", async () => (await session.info()).turns === 2);
  await troupe.close();
  return Buffer.from(await exportSession(path, "s"));
}

const TOOLS = { ask: { description: "Asks.", inputSchema: EMPTY_OBJECT, execute: () => pendingTool() } };

describe("a beforeTurn hook that replaces the input", () => {
  test("is what the model, the history and every other hook see of it", async () => {
    const { session } = await started({ plugins: [{ module: plugin("inputs"), ...PATIENT }, REDACTS] });
    const { text } = await session.turn(`Pay with ${CARD}.`);
    expect(text).toBe("Pay with [card].");
    expect(await said(session)).toEqual(["Pay with [card].", "Pay with [card]."]);
    // Also of plugins before it, and of those that decide what the model reads.
    expect(await session.query("inputs")).toEqual([
      "turnContextTransform Pay with [card].",
      "beforeTurn Pay with [card].",
      "promptContributor Pay with [card].",
    ]);
    expect(await askedOf(session)).toEqual(["turn t1: Pay with RAW."]);
  });

  test("leaves nothing of the input in the store: not of a turn, said into one, queued, keyed or exported", async () => {
    const { troupe, path } = await started({ model: asksTool, tools: TOOLS });
    const exported = await asksEverything(troupe, path);
    expect(await holdsCard(path)).toBe(false);
    expect(exported.includes(CARD)).toBe(false);
    expect(exported.includes("[card], said meanwhile.")).toBe(true);
    expect((await bytesOf(path)).includes("[card]")).toBe(true);
  });

  test("that is not there leaves all of it: the search above would find it", async () => {
    const { troupe, path } = await started({ model: asksTool, tools: TOOLS, plugins: [] });
    const exported = await asksEverything(troupe, path);
    expect(await holdsCard(path)).toBe(true);
    expect(exported.includes(CARD)).toBe(true);
  });

  test.each([
    ["with the hook", [REDACTS], false],
    ["without it", [], true],
  ])("%s, killed in mid-turn, what the journal holds of it goes on", async (_, plugins, holds) => {
    const path = await tempFolder();
    const options = { store: { path }, plugins, tools: { ask: { module: fixture("tools/waits.mjs") } } };
    const model = await counts();
    const first = new Elsewhere({ ...options, model } as never, { input: `ask ${CARD}` });
    const { key = "" } = await first.says("tool_call_pending");
    await first.kill();
    expect(await holdsCard(path)).toBe(holds);
    // What was written down is enough to go on with.
    const troupe = await startTroupe({ ...options, model } as never);
    await troupe.completeTool(key, { value: "yes" });
    const session = await troupe.session("s");
    await until("the turn is stored", async () => (await session.info()).turns === 1);
    expect((await said(session))[0]).toBe(holds ? `ask ${CARD}` : "ask [card]");
    await troupe.close();
    expect(await holdsCard(path)).toBe(holds);
  });

  test("that was not done when the process was killed leaves nothing of the turn", async () => {
    const path = await tempFolder();
    const options = { model: await counts(), store: { path }, plugins: [{ ...REDACTS, deadlineMs: 600_000 }] };
    const first = new Elsewhere(options, { input: `hold ${CARD}` });
    await first.says("turn_started");
    await first.kill();
    expect(await holdsCard(path)).toBe(false);
    const troupe = await startTroupe(options);
    const session = await troupe.session("s");
    expect(await session.info()).toMatchObject({ turns: 0, state: expect.stringMatching(/^(idle|parked)$/) });
    expect((await session.turn("hello")).turnIndex).toBe(1);
  });

  test("is asked again when the session's worker died under it, and the turn comes to its end", async () => {
    const { troupe, path, session } = await started({ plugins: [{ ...REDACTS, deadlineMs: 600_000 }] });
    const turn = session.turn(`late ${CARD}`);
    for await (const { type } of turn) if (type === "turn_started") break;
    await troupe.kill({ sessionWorker: 0 });
    expect((await turn).text).toBe("late [card]");
    expect(await holdsCard(path)).toBe(false);
  });

  test("gets every input that is to wait, before it waits, and those of a plugin's operations", async () => {
    const { troupe, session } = await started({ model: asksTool, tools: TOOLS });
    const turn = session.turn("first");
    for await (const activity of turn)
      if (activity.type === "tool_call_pending") {
        // Not awaited one by one: the slower one keeps its place.
        const waiting = await Promise.all([
          session.enqueue(`late ${CARD}`),
          session.enqueue(`quick ${CARD}`),
          session.steer(`meanwhile ${CARD}`),
        ]);
        expect(waiting.map(({ text }) => text)).toEqual(["late [card]", "quick [card]", "meanwhile [card]"]);
        expect((await session.inputs()).map(({ text }) => text)).toEqual([
          "late [card]",
          "quick [card]",
          "meanwhile [card]",
        ]);
        await troupe.completeTool(activity.key, { value: "yes" });
      }
    const command = await session.command("ask", { text: `asked ${CARD}` });
    expect(command.turns).toEqual(["asked [card]"]);
    expect((await askedOf(session)).slice(0, 4)).toEqual([
      "turn t1: first",
      "enqueue t2: late RAW",
      "enqueue t2: quick RAW",
      "steer t1: meanwhile RAW",
    ]);
  });

  test("keeps what is asked behind an input behind it, while it has that input", async () => {
    const { troupe, session } = await started({ model: asksTool, tools: TOOLS });
    const turn = session.turn("first");
    for await (const activity of turn)
      if (activity.type === "tool_call_pending") {
        const enqueued = session.enqueue("late and unwanted", { key: "k" });
        expect(await session.cancelInput("k")).toBe("cancelled");
        await enqueued;
        const steered = session.steer("late, into this turn");
        await Promise.all([steered, troupe.completeTool(activity.key, { value: "yes" })]);
      }
    await turn;
    expect(await said(session)).toContain("late, into this turn");
    expect((await session.info()).turns).toBe(1);
  });

  test("refuses an input that waits when it aborts, and stores an aborted turn with what it made of it", async () => {
    const { path, session } = await started();
    const refused = await refusalOf(session.enqueue(`forbidden ${CARD}`));
    expect(refused).toMatchObject({
      code: "input_refused",
      details: { pluginId: "test.replaces-input", code: "not_here" },
    });
    expect(await session.inputs()).toEqual([]);
    const { outcome } = await session.turn(`forbidden ${CARD}`);
    expect(outcome).toMatchObject({ reason: "plugin_abort", code: "not_here" });
    expect(await said(session)).toEqual(["[forbidden]"]);
    expect(await holdsCard(path)).toBe(false);
  });

  test.each(["throw", "end the plugin"])(
    "that fails (%s) refuses the turn and the input, whatever the host's policy for its failures",
    async (input) => {
      const { path, session } = await started({ plugins: [{ ...REDACTS, onFailure: "skip" }] });
      expect((await refusalOf(session.turn(`${input} ${CARD}`))).code).toBe("plugin_prepare_turn");
      expect((await refusalOf(session.enqueue(`${input} ${CARD}`))).code).toBe("plugin_prepare_turn");
      expect(await said(session)).toEqual([]);
      expect(await holdsCard(path)).toBe(false);
      expect((await session.turn("hello")).text).toBe("hello");
    },
  );

  test("that has not answered when its turn is cancelled leaves the text out of the cancelled turn", async () => {
    const { path, session } = await started({ plugins: [{ ...REDACTS, deadlineMs: 600_000 }] });
    const turn = session.turn(`hold ${CARD}`);
    for await (const activity of turn) if (activity.type === "turn_started") turn.cancel("enough");
    expect((await turn).outcome).toMatchObject({ reason: "cancelled" });
    expect(await said(session)).toEqual([""]);
    expect(await holdsCard(path)).toBe(false);
  });

  test("that has not answered when the runtime closes is not begun: its caller is told to ask again", async () => {
    const path = await tempFolder();
    const options = { model: ECHO, store: { path }, plugins: [{ ...REDACTS, deadlineMs: 600_000 }], drainMs: 50 };
    const troupe = await createTroupe(options);
    onTestFinished(() => troupe.close());
    const turn = (await troupe.session("s")).turn(`hold ${CARD}`);
    const refused = refusalOf(turn);
    for await (const { type } of turn) if (type === "turn_started") break;
    await troupe.close();
    expect(await refused).toMatchObject({ code: "session_closed", retryable: true });
    expect(await holdsCard(path)).toBe(false);
  });

  test("keeps attachments, and puts the text where the first one stood", async () => {
    const { session } = await started({ attachments: { urls: true } });
    const attachment = {
      type: "attachment",
      source: { kind: "url", mediaType: "image/png", url: "https://a.example/b.png" },
    } as const;
    await session.turn({
      items: [attachment, { type: "text", text: CARD }, attachment, { type: "text", text: " twice" }],
    });
    const [first] = await session.messages();
    expect(first?.parts.map((part) => (part.type === "text" ? part.text : part.type))).toEqual([
      "attachment",
      "[card] twice",
      "attachment",
    ]);
  });

  test("leaves a keyed turn its name: asked again it is answered, another input is noticed as long as the session is in memory", async () => {
    const path = await tempFolder();
    const options = { model: ECHO, store: { path }, plugins: [REDACTS], parkAfterMs: 600_000, maxResident: 1_000 };
    const first = await createTroupe(options);
    onTestFinished(() => first.close());
    const session = await first.session("s");
    const { turnId } = await session.turn(`Pay with ${CARD}.`, { key: "k" });
    expect(await session.turn(`Pay with ${CARD}.`, { key: "k" })).toMatchObject({ turnId });
    expect((await refusalOf(session.turn("Pay with another.", { key: "k" }))).code).toBe("turn_key_conflict");
    expect(await askedOf(session)).toHaveLength(1);
    await first.close();
    const again = await (await startTroupe(options)).session("s");
    expect(await again.turn(`Pay with ${CARD}.`, { key: "k" })).toMatchObject({ turnId });
    expect(await again.turn("Pay with another.", { key: "k" })).toMatchObject({ turnId });
    const key = "waits";
    const { id } = await again.enqueue(`late ${CARD}`, { key });
    expect(id).toEqual(expect.any(String));
  });

  test("works without a journal and in memory", async () => {
    const { session } = await started({ store: { memory: true } } as never);
    expect((await session.turn(`Pay with ${CARD}.`)).text).toBe("Pay with [card].");
    await session.enqueue(`Then with ${CARD}.`);
    await until("the next turn is stored", async () => (await session.info()).turns === 2);
    expect(await said(session)).toContain("Then with [card].");
  });

  test("tells its events with the turn, as any beforeTurn hook", async () => {
    const { session } = await started();
    const activities = await collect(session.turn("hello"));
    expect(activities).toContainEqual(
      expect.objectContaining({
        type: "plugin_event",
        pluginId: "test.replaces-input",
        event: { name: "seen", payload: "turn" },
      }),
    );
  });

  test("must be declared: replaceInput of a plain beforeTurn refuses the turn and says how to", async () => {
    const troupe = await startTroupe({ model: ECHO, plugins: [{ module: plugin("undeclared-replace"), ...PATIENT }] });
    const refused = await refusalOf((await troupe.session("s")).turn("hello"));
    expect(refused.code).toBe("plugin_prepare_turn");
    expect(refused.message).toContain("declare it as beforeTurn: { replacesInput: true, run }");
  });
});
