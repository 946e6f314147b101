import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { createTroupe, finishTurn, type Script, type Session, scriptedModel, type TroupeOptions } from "troupe";
import { describe, expect, expectTypeOf, onTestFinished, test } from "vitest";
import { z } from "zod";
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

const WEATHER = z.object({ city: z.string(), celsius: z.number() });
const OSLO = { city: "Oslo", celsius: 4 };
const GOOD = JSON.stringify(OSLO);
const BAD = JSON.stringify({ city: "Oslo", celsius: "cold" });
const call = (tool: string, args: unknown) => ({ toolCalls: [{ tool, args: args as never }] });

/** A model that answers in its own JSON mode, and one that is given a tool to end with: the same to everybody else. */
const MODES: readonly [string, (...answers: string[]) => Script][] = [
  ["in its own JSON mode", (...answers) => ({ turns: [answers.map((text) => ({ text }))] })],
  [
    "by a tool that it ends with",
    (...answers) => ({
      jsonMode: false,
      turns: [answers.map((argsText) => ({ toolCalls: [{ tool: "final_answer", argsText }] }))],
    }),
  ],
];

async function started(script: Script, options: TroupeOptions = {}): Promise<Session> {
  return (await startTroupe({ model: scriptedModel(script), ...options })).session("s");
}
const said = async (session: Session) =>
  (await session.messages()).map(({ role, parts }) => [
    role,
    ...parts.map((part) => (part.type === "text" ? part.text : part.type)),
  ]);

describe.each(MODES)("a turn with an output, of a model that answers %s", (_, saying) => {
  test("gives the value, typed by the schema, and the history has the answer as text", async () => {
    const session = await started(saying(GOOD));
    const turn = session.turn("How warm is it?", { output: WEATHER });
    const activities = await collect(turn);
    const { value, outcome, text, modelCalls } = await turn;
    expectTypeOf(value).toEqualTypeOf<{ city: string; celsius: number } | undefined>();
    expect(value).toEqual(OSLO);
    expect(outcome).toEqual({ type: "finished", text: GOOD, value: OSLO });
    expect([text, modelCalls]).toEqual([GOOD, 1]);
    expect(await said(session)).toEqual([
      ["user", "How warm is it?"],
      ["assistant", GOOD],
    ]);
    // The answer streams as any other, and no call of the tool is anybody's business.
    const shown = activities.flatMap((activity) => (activity.type === "text_delta" ? [activity.text] : []));
    expect(shown.join("")).toBe(GOOD);
    expect(activities.some(({ type }) => type.startsWith("tool_call"))).toBe(false);
  });

  test("tells the model once what does not fit, and both answers are in the records", async () => {
    const session = await started(saying(BAD, GOOD));
    const { value, modelCallRecords, issues } = await session.turn("How warm is it?", { output: WEATHER });
    expect(value).toEqual(OSLO);
    expect(modelCallRecords.map(({ misfit }) => misfit)).toEqual([
      "The answer does not fit its schema: celsius must be number.",
      undefined,
    ]);
    expect(issues).toEqual([]);
    expect(await said(session)).toEqual([
      ["user", "How warm is it?"],
      ["assistant", BAD],
      [
        "user",
        "The answer does not fit its schema: celsius must be number. Answer again, completely, in the form that was asked for.",
      ],
      ["assistant", GOOD],
    ]);
  });

  test("ends with output_invalid when the second answer does not fit either: stored, and without a value", async () => {
    const session = await started(saying(BAD, BAD, GOOD));
    const { value, outcome, modelCalls } = await session.turn("How warm is it?", { output: WEATHER });
    expect([value, modelCalls]).toEqual([undefined, 2]);
    expect(outcome).toEqual({
      type: "stopped",
      reason: "invalid_output",
      code: "output_invalid",
      message: "The answer does not fit its schema: celsius must be number.",
    });
    expect((await session.info()).turns).toBe(1);
  });

  test("that has no model call left does not ask again", async () => {
    const session = await started(saying(BAD, GOOD));
    const { outcome, modelCalls } = await session.turn("How warm is it?", { output: WEATHER, maxSteps: 1 });
    expect([outcome.type === "stopped" && outcome.code, modelCalls]).toEqual(["output_invalid", 1]);
  });

  test("takes a value that is no object, of a JSON Schema", async () => {
    const session = await started(saying(_.includes("tool") ? '{"value":[1,2]}' : "[1,2]"));
    const output = { type: "array", items: { type: "number" } } as const;
    const { value } = await session.turn("Count.", { output });
    expect(value).toEqual([1, 2]);
  });

  test("goes through its tools first", async () => {
    const script = saying(GOOD);
    const [[last = {}] = []] = script.turns;
    const tools = { look: { description: "Looks.", inputSchema: EMPTY_OBJECT, execute: () => "cold" } };
    const session = await started({ ...script, turns: [[call("look", {}), last]] }, { tools });
    const { value, toolCalls } = await session.turn("How warm is it?", { output: WEATHER });
    expect(value).toEqual(OSLO);
    expect(toolCalls.map(({ toolName }) => toolName)).toEqual(["look"]);
  });

  test("checks what a schema would take long over away from the session worker", async () => {
    const session = await started(saying('{"code":"aaab"}', '{"code":"aaa"}'));
    const output = {
      type: "object",
      properties: { code: { type: "string", pattern: "^a+$" } },
      required: ["code"],
    } as const;
    expect((await session.turn("Which code?", { output })).value).toEqual({ code: "aaa" });
  });

  test("passes stream and response hooks as text", async () => {
    const session = await started(saying(GOOD), { plugins: [{ module: plugin("upper-case"), ...PATIENT }] });
    const { text } = await session.turn("How warm is it?", { output: { type: "object" } });
    expect(text).toBe(GOOD.toUpperCase());
  });
});

describe("the value of a turn", () => {
  test("is what the schema's own validate makes of the answer; what it refuses rejects, and the turn is stored", async () => {
    const session = await started({ turns: [[{ text: GOOD }]] });
    const warm = WEATHER.transform(({ celsius }) => celsius * 2);
    expect((await session.turn("How warm is it?", { output: warm })).value).toBe(8);
    const positive = WEATHER.refine(({ celsius }) => celsius > 10, "It is too cold.");
    const refused = await refusalOf(session.turn("How warm is it?", { output: positive }));
    expect(refused).toMatchObject({ code: "output_invalid", details: { turnId: "t2", issues: ["It is too cold."] } });
    expect((await session.info()).turns).toBe(2);
  });

  test("is the same when a keyed turn is asked again, also by another process", async () => {
    const path = await tempFolder();
    const options = { model: scriptedModel({ turns: [[{ text: BAD }, { text: GOOD }]] }), store: { path } };
    const first = await createTroupe(options);
    onTestFinished(() => first.close());
    const asked = { key: "k", output: WEATHER };
    expect((await (await first.session("s")).turn("How warm is it?", asked)).value).toEqual(OSLO);
    await first.close();
    const again = await (await startTroupe(options)).session("s");
    const { value, modelCallRecords } = await again.turn("How warm is it?", asked);
    expect(value).toEqual(OSLO);
    expect(modelCallRecords).toHaveLength(2);
    expect((await again.info()).turns).toBe(1);
  });

  test("is undefined when the turn ends without an answer", async () => {
    const session = await started({ turns: [[{ fail: { code: "model_failed" } }]] });
    const { value, outcome } = await session.turn("How warm is it?", { output: WEATHER });
    expect([value, outcome.type]).toEqual([undefined, "stopped"]);
  });

  test("may be what a tool ends the turn with, checked when it is delivered", async () => {
    const report = (value: unknown) => ({
      tools: {
        report: { description: "Reports.", inputSchema: EMPTY_OBJECT, execute: () => finishTurn(value as never) },
      },
    });
    const script = { turns: [[call("report", {})]] };
    const fits = await started(script, report(OSLO));
    expect((await fits.turn("?", { output: WEATHER })).value).toEqual(OSLO);
    const misfits = await started(script, report({ city: 7 }));
    expect((await refusalOf(misfits.turn("?", { output: WEATHER }))).code).toBe("output_invalid");
    const json = { type: "object", required: ["celsius"] } as const;
    expect((await refusalOf(misfits.turn("?", { output: json }))).message).toContain(
      "must have required property 'celsius'",
    );
  });

  test("is read from a code block, and from the last text of an answer with several", async () => {
    const session = await started({ turns: [[{ text: `\`\`\`json\n${GOOD}\n\`\`\`` }]] });
    expect((await session.turn("?", { output: WEATHER })).value).toEqual(OSLO);
  });
});

describe("a turn with an output that is interrupted", () => {
  test("pays for no answer twice: neither the one that did not fit, nor the one that did", async () => {
    const path = await tempFolder();
    const calls = join(await tempFolder(), "calls");
    const model = new URL(`${fixture("models/answers.mjs")}?file=${encodeURIComponent(calls)}`);
    const options = { model, store: { path }, sessionWorkers: 1 };
    const output = { type: "object", properties: { n: { type: "number" } }, required: ["n"] };
    // The second call hangs: by then the first answer and what was wrong with it are written down.
    const first = new Elsewhere(options, { input: "misfit hang", extras: { output } as never });
    const lines = async () => (await readFile(calls, "utf8").catch(() => "")).split("\n").filter(Boolean);
    await until("the model is asked again", async () => (await lines()).length === 2);
    await first.kill();
    const troupe = await startTroupe(options);
    const session = await troupe.session("s");
    await until("the turn is stored", async () => (await session.info()).turns === 1);
    expect(await lines()).toEqual(["t1 0", "t1 1", "t1 1"]);
    expect((await session.messages()).at(-1)?.parts).toEqual([{ type: "text", text: '{"n":1}' }]);
  });
});

describe("an output that cannot be used", () => {
  test.each([
    ["a text", "city", "output is a Standard Schema, such as one of zod, or a JSON Schema"],
    ["a shape and no schema", { city: z.string() }, "Wrap it: z.object({ city: … })"],
    ["a schema that is broken", { type: "objekt" }, "type"],
  ])("is refused at the call: %s", async (_, output, why) => {
    const session = await started({ turns: [[{ text: GOOD }]] });
    expect(() => session.turn("?", { output: output as never })).toThrow(
      expect.objectContaining({ code: "invalid_turn_options", message: expect.stringContaining(why) }),
    );
  });
});

test("a turn without an output has no field of one: not in its request, its result or its records", async () => {
  const session = await started({ turns: [[{ text: "hi" }]] });
  const result = await session.turn("hi");
  expect("value" in result).toBe(false);
  expect(result.outcome).toEqual({ type: "finished", text: "hi" });
  expect(Object.keys(result.modelCallRecords[0] ?? {})).not.toContain("misfit");
});
