import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { scriptedModel, toolError } from "troupe";
import { expect, test } from "vitest";
import { keptLog, listening } from "../../support/listening.js";
import {
  EMPTY_OBJECT,
  fixture,
  oneToolCall,
  PATIENT,
  RESIDENT,
  refusalOf,
  startTroupe,
  tempFolder,
  until,
} from "../../support/runtime.js";

/** What a user saw who looked for what went wrong: reference/first-use.md, lines 18 to 21. */
const guard = (options: object, entry: object = {}) => ({
  module: fixture("events/faulty.mjs"),
  options,
  ...PATIENT,
  ...entry,
});
const throwing = (execute: () => unknown) => ({ refund: { description: "d", inputSchema: EMPTY_OBJECT, execute } });

test("18: a turn that was fired and forgotten, and is refused, is told with its session, its code and that nobody waited", async () => {
  const { onEvent, first } = listening();
  const troupe = await startTroupe({ onEvent, plugins: [guard({ beforeTurn: { throws: "the guard broke" } })] });
  const session = await troupe.session("chat-42", { tenant: "acme" });
  session.turn("my card is secret-word");
  const event = await first("turn_refused");
  expect(event).toMatchObject({ session: "chat-42", tenant: "acme", code: "plugin_prepare_turn", background: true });
  expect(JSON.stringify(event)).not.toContain("secret-word");
});

test("18: a turn that an enqueued input begins, and that is refused, is told, though no handle of it was ever given out", async () => {
  const { onEvent, first } = listening();
  const troupe = await startTroupe({ onEvent, plugins: [guard({ beforeTurn: { throws: "the guard broke" } })] });
  const session = await troupe.session("chat-42", { tenant: "acme" });
  await session.enqueue("hello");
  expect(await first("turn_refused")).toMatchObject({
    session: "chat-42",
    tenant: "acme",
    code: "plugin_prepare_turn",
    background: true,
    error: { stack: expect.stringContaining("faulty.mjs") },
  });
});

test("18: a turn that somebody awaits and that is refused says so in its event, and what was said is in it only when asked for", async () => {
  const { onEvent, first } = listening();
  const troupe = await startTroupe({
    onEvent,
    logContent: true,
    redact: (value, where) => (where === "input" ? String(value).replace(/\d+/, "****") : value),
    plugins: [guard({ beforeTurn: { throws: "the guard broke" } })],
  });
  const session = await troupe.session("chat-42");
  await refusalOf(session.turn("my card is 4111"));
  expect(await first("turn_refused")).toMatchObject({ background: false, content: { input: "my card is ****" } });
});

test("19: a host tool that throws is told with its stack and its cause, and the model reads no word of the exception", async () => {
  const { onEvent, first } = listening();
  const troupe = await startTroupe({
    onEvent,
    tools: throwing(function refundCard() {
      throw new RangeError("row 7 of customers is locked", { cause: new Error("deadlock") });
    }),
    model: oneToolCall("refund"),
  });
  const result = await (await troupe.session("chat-42")).turn("hi");
  expect(result.text).toBe("Result: [Tool execution failed]\ntool_failed: refund failed");
  const event = await first("tool_failed");
  expect(event).toMatchObject({
    session: "chat-42",
    turn: "t1",
    tool: "refund",
    code: "tool_failed",
    home: "host",
    error: { message: "row 7 of customers is locked", cause: { name: "RangeError", cause: { message: "deadlock" } } },
  });
  expect(event.error.stack).toContain("refundCard");
});

test("19: a plugin's tool that throws is told with the plugin and the plugin's own stack, and the model reads no word of it", async () => {
  const { onEvent, first } = listening();
  const troupe = await startTroupe({ onEvent, plugins: [guard({})], model: oneToolCall("break_down") });
  const result = await (await troupe.session("chat-42")).turn("hi");
  expect(result.text).toBe("Result: [Tool execution failed]\ntool_failed: break_down failed");
  const event = await first("tool_failed");
  expect(event).toMatchObject({
    session: "chat-42",
    plugin: "acme.guard",
    tool: "break_down",
    home: "plugin",
    error: { message: "the ledger is closed", cause: { name: "GuardBroke" } },
  });
  expect(event.error.stack).toMatch(/breakDown.*faulty\.mjs/);
});

test("19: what a tool throws by toolError the model reads, and nobody is woken for it", async () => {
  const { onEvent, events } = listening();
  const troupe = await startTroupe({
    onEvent,
    tools: throwing(() => {
      throw toolError("There is no order 7. Ask for the number on the receipt.");
    }),
    model: oneToolCall("refund"),
  });
  const result = await (await troupe.session("chat-42")).turn("hi");
  expect(result.text).toBe(
    "Result: [Tool execution failed]\ntool_error: There is no order 7. Ask for the number on the receipt.",
  );
  await troupe.close();
  expect(events).toEqual([]);
});

test("19: a beforeToolCall that throws every time is an issue with its plugin, an event, and counted in stats; the model reads none of it", async () => {
  const { onEvent, first } = listening();
  const troupe = await startTroupe({
    onEvent,
    plugins: [guard({ beforeToolCall: { throws: "no such table: limits" } })],
    tools: throwing(() => "done"),
    model: oneToolCall("refund"),
  });
  const session = await troupe.session("chat-42");
  const result = await session.turn("hi");
  expect(result.outcome.type).toBe("finished");
  expect(result.text).toBe(
    "Result: [Tool execution failed]\nbefore_tool_call_failed: refund was not run, because a beforeToolCall hook failed",
  );
  expect(result.issues).toEqual([
    { kind: "plugin", code: "before_tool_call_failed", message: "no such table: limits", pluginId: "acme.guard" },
  ]);
  await session.turn("again");
  expect(await first("hook_failed")).toMatchObject({ plugin: "acme.guard", hook: "beforeToolCall" });
  const { hooks } = await troupe.stats();
  expect(hooks["plugin_hook.before_tool_call.acme.guard"]).toMatchObject({ count: 2, errors: 2, timeouts: 0 });
});

test("19: a hook that misses its deadline is counted as a timeout of its plugin", async () => {
  const { onEvent, first } = listening();
  const troupe = await startTroupe({
    onEvent,
    plugins: [guard({ promptContributor: { hangs: true } }, { deadlineMs: 50, onFailure: "skip" })],
  });
  await (await troupe.session("chat-42")).turn("hi");
  expect(await first("hook_failed")).toMatchObject({
    timeout: true,
    outcome: "skipped",
    error: { code: "hook_timeout" },
  });
  const { hooks } = await troupe.stats();
  expect(hooks["plugin_hook.prompt_contributor.acme.guard"]).toMatchObject({ errors: 1, timeouts: 1 });
});

test.each(["worker", "inline"] as const)(
  "20: a beforeTurn that throws in the tier %s is told with the plugin, the hook, the session and the plugin's own stack",
  async (tier) => {
    const { onEvent, first } = listening();
    const { lines, log } = keptLog();
    const troupe = await startTroupe({
      ...RESIDENT,
      onEvent,
      log,
      plugins: [guard({ beforeTurn: { throws: "the guard broke" } }, { tier })],
    });
    const session = await troupe.session("chat-42", { tenant: "acme" });
    const error = await refusalOf(session.turn("hello"));
    expect(error).toMatchObject({
      code: "plugin_prepare_turn",
      details: { pluginId: "acme.guard", hook: "beforeTurn" },
    });
    expect(error.stack).toContain("breakDown");
    expect(error.stack).toContain("faulty.mjs");

    const event = await first("hook_failed");
    expect(event).toMatchObject({
      plugin: "acme.guard",
      hook: "beforeTurn",
      session: "chat-42",
      tenant: "acme",
      turn: "t1",
      timeout: false,
      outcome: "default",
      count: 1,
      error: { code: "hook_failed", message: "the guard broke", cause: { name: "GuardBroke" } },
    });
    expect(event.thread).toMatch(/^Session worker \d$/);
    expect(event.error.stack).toContain("breakDown");
    const hears = () => lines.find(({ fields }) => fields.type === "hook_failed");
    await until("the logger has a line", () => hears() !== undefined);
    expect(hears()).toEqual({
      level: "error",
      fields: event,
      message: "Plugin acme.guard: beforeTurn failed: the guard broke",
    });
  },
);

test("21: an audit plugin without its permission has an issue that names the file and the grant that would allow it", async () => {
  const { onEvent, first } = listening();
  const file = join(await tempFolder(), "audit.jsonl");
  const troupe = await startTroupe({ onEvent, plugins: [guard({ turnPersisted: { writes: file } })] });
  const { outcome, issues } = await (await troupe.session("chat-42")).turn("hi");
  expect(outcome.type).toBe("finished");
  const words = `Plugin acme.guard may not write to ${file}. Allow it in its entry, with permissions: { write: ["${file}"] }, or a folder that contains it.`;
  expect(issues).toEqual([
    { kind: "plugin", code: "lifecycle_hook_failed", message: `turnPersisted: ${words}`, pluginId: "acme.guard" },
  ]);
  expect((await first("hook_failed")).error).toMatchObject({
    code: "permission_denied",
    message: words,
    cause: { code: "ERR_ACCESS_DENIED", permission: "FileSystemWrite", resource: file },
  });
});

test("21: an audit plugin may make the folder it was granted before there was one, and write into it", async () => {
  const folder = join(await tempFolder(), "later");
  const file = join(folder, "audit.jsonl");
  const troupe = await startTroupe({
    plugins: [
      guard({ turnPersisted: { writes: file, makes: true } }, { permissions: { write: [folder], read: [folder] } }),
    ],
    model: scriptedModel({ turns: [[{ text: "done" }]] }),
  });
  const { issues } = await (await troupe.session("chat-42")).turn("hi");
  expect(issues).toEqual([]);
  expect(await readFile(file, "utf8")).toBe("chat-42\n");
});
