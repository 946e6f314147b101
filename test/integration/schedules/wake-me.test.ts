import { createTroupe, scriptedModel } from "troupe";
import { expect, test } from "vitest";
import { firstToolValue, refusalOf, startTroupe, tempFolder, until } from "../../support/runtime.js";

const wakes = (args: object) =>
  scriptedModel({
    turns: [
      [{ toolCalls: [{ tool: "wake_me", args: args as never }] }, { text: "Later." }],
      [{ text: "Awake: {input}" }],
    ],
  });
const options = (args: object) => ({ model: wakes(args), builtInTools: ["wake_me"] as const });

test("a model that asks to be woken has its message back then, and the schedule is gone behind it", async () => {
  const troupe = await startTroupe(options({ message: "Look again.", in_seconds: 1 }));
  const session = await troupe.session("s");
  const { toolCalls } = await session.turn("Watch the door.");
  expect(firstToolValue({ toolCalls })).toEqual({ wakes_at: expect.stringMatching(/^\d{4}-.*Z$/) });
  await until("it is woken", async () => (await session.info()).turns === 2);
  const last = (await session.messages({ from: -1 }))[0]?.parts[0];
  expect(last).toMatchObject({ text: "Awake: You asked to be woken with this message: Look again." });
  expect((await troupe.schedules.list()).schedules).toEqual([]);
});

test("a session is about to be woken 32 times and no more, also when a model asks for all of them at once", async () => {
  const call = { tool: "wake_me", args: { message: "Look.", in_seconds: 1_000 } };
  const troupe = await startTroupe({
    model: scriptedModel({ turns: [[{ toolCalls: Array(40).fill(call) }, { text: "Later." }]] }),
    builtInTools: ["wake_me"],
  });
  const { toolCalls } = await (await troupe.session("s")).turn("Wake up often.");
  const refused = toolCalls.filter(({ output }) => output.status !== "success").map(({ output }) => output);
  expect(refused).toHaveLength(8);
  expect(JSON.stringify(refused[0])).toContain("You are to be woken 32 times already.");
  expect((await troupe.schedules.list()).schedules).toHaveLength(32);
});

test("being woken outlives the process, and goes with its session", async () => {
  const path = await tempFolder();
  const asked = options({ message: "Good morning.", at: "2999-01-01T00:00:00Z" });
  const first = await createTroupe({ ...asked, store: { path } });
  await (await first.session("s")).turn("Sleep well.");
  await first.close();
  const troupe = await startTroupe({ ...asked, store: { path } });
  const { schedules } = await troupe.schedules.list({ prefix: "wake:" });
  expect(schedules).toMatchObject([{ session: "s", next: Date.UTC(2999, 0, 1), maxRuns: null }]);
  await troupe.deleteSession("s");
  expect((await refusalOf(troupe.schedules.runNow(schedules[0]?.key ?? ""))).code).toBe("session_deleted");
});

test.each([
  ["no time", { message: "m" }, "Say when: either in_seconds or at."],
  ["two times", { message: "m", in_seconds: 5, at: "2999-01-01T00:00:00Z" }, "Say when: either in_seconds or at."],
  ["a time without its zone", { message: "m", at: "2999-01-01T00:00" }, "a text with its zone"],
])("a model that asks to be woken with %s reads what is wrong", async (_, args, message) => {
  const troupe = await startTroupe(options(args));
  const { toolCalls } = await (await troupe.session("s")).turn("Watch.");
  const output = toolCalls[0]?.output;
  expect(output?.status === "failure" && output.failure.message).toContain(message);
});

test("a built-in tool nobody knows is refused with those there are, and without the option there is none", async () => {
  expect((await refusalOf(createTroupe({ builtInTools: ["wake_mee" as never] }))).message).toBe(
    'builtInTools has no tool "wake_mee". Did you mean "wake_me"?',
  );
  const troupe = await startTroupe({ model: wakes({ message: "m", in_seconds: 5 }) });
  const { toolCalls } = await (await troupe.session("s")).turn("Watch.");
  expect(firstToolValue({ toolCalls })).toBe("tool_unavailable");
});
