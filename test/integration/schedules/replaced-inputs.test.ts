import { readdir, readFile } from "node:fs/promises";
import { join } from "node:path";
import { exportSession, pendingTool, scriptedModel, type TroupeEvent } from "troupe";
import { expect, test } from "vitest";
import { EMPTY_OBJECT, PATIENT, plugin, startTroupe, tempFolder, until } from "../../support/runtime.js";

const HOUR = 3_600_000;
const CARD = "4000123412341234";
/** The rows of the schedule and the event are the host's and have them so: only an input that is delivered has these bytes. */
const [HALF, OTHER_HALF] = [CARD.slice(0, 8), CARD.slice(8)];
const IN_JSON = `"card":"${CARD}"`;
const MAIL = { module: plugin("mail") };
const REDACTS = { module: plugin("replaces-input"), ...PATIENT };
const model = scriptedModel({
  turns: [[{ toolCalls: [{ tool: "ask" }] }, { text: "{input}" }], ...Array(4).fill([{ text: "{input}" }])],
});
const TOOLS = { ask: { description: "Asks.", inputSchema: EMPTY_OBJECT, execute: () => pendingTool() } };

async function bytesOf(path: string): Promise<Buffer> {
  const files = await readdir(path, { recursive: true, withFileTypes: true });
  const whole = files.filter((file) => file.isFile()).map((file) => readFile(join(file.parentPath, file.name)));
  return Buffer.concat(await Promise.all(whole));
}

test.each([
  ["with a hook that replaces inputs", [MAIL, REDACTS], false],
  ["without one", [MAIL], true],
])(
  "%s, what a schedule and a trigger bring waits and is kept as it is left by hooks",
  async (_title, plugins, isRaw) => {
    const path = await tempFolder();
    const troupe = await startTroupe({ model, tools: TOOLS, plugins, store: { path }, sessionWorkers: 1 });
    const session = await troupe.session("s");
    await session.subscribe("mail.received");
    const input = {
      items: [HALF, OTHER_HALF].map((text) => ({ type: "text" as const, text })),
    };
    await troupe.schedules.put("pay", { session: "s", everyMs: HOUR, input });
    const raw = async () => {
      const bytes = await bytesOf(path);
      return [CARD, IN_JSON].map((text) => bytes.includes(text));
    };
    const turn = session.turn("first");
    for await (const activity of turn)
      if (activity.type === "tool_call_pending") {
        expect(await raw()).toEqual([false, false]);
        await troupe.schedules.runNow("pay");
        const [waits] = await session.inputs();
        expect(waits?.text).toBe(isRaw ? CARD : "[card]");
        expect((await raw())[0]).toBe(isRaw);
        await troupe.trigger("mail.received", { from: "ada", card: CARD });
        // The event's own row has the number by now, and nowhere its text as JSON.
        expect((await raw())[1]).toBe(isRaw);
        await troupe.completeTool(activity.key, { value: "yes" });
      }
    await until("all three are stored", async () => (await session.info()).turns === 3);
    const said = (await session.messages()).flatMap(({ parts }) =>
      parts.map((part) => ("text" in part ? part.text : "")),
    );
    expect(said).toContain(isRaw ? CARD : "[card]");
    await troupe.close();
    expect((await raw())[1]).toBe(isRaw);
    expect(Buffer.from(await exportSession(path, "s")).includes(CARD)).toBe(isRaw);
  },
);

test("a hook that aborts what a schedule brings fails that run, and the schedule goes on", async () => {
  const events: TroupeEvent[] = [];
  const troupe = await startTroupe({ plugins: [MAIL, REDACTS], onEvent: (event) => void events.push(event) });
  const session = await troupe.session("s");
  await session.subscribe("mail.received");
  await troupe.schedules.put("no", { session: "s", everyMs: HOUR, input: "forbidden" });
  expect(await troupe.schedules.runNow("no")).toMatchObject({ outcome: "failed", error: { code: "input_refused" } });
  expect(await troupe.schedules.get("no")).toMatchObject({ state: "active", runs: 1 });
  expect(await troupe.trigger("mail.received", { from: "forbidden" })).toMatchObject({ matched: 0 });
  await until("both are told", () => events.some(({ type }) => type === "trigger_failed"));
  const told = events.filter(({ type }) => type === "schedule_failed" || type === "trigger_failed");
  expect(told).toMatchObject([
    { type: "schedule_failed", schedule: "no", final: false, error: { code: "input_refused" } },
    { type: "trigger_failed", trigger: "mail.received", session: "s", error: { code: "input_refused" } },
  ]);
  expect(await session.messages()).toEqual([]);
});
