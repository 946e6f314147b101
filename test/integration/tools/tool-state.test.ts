import { createTroupe, type Session, type TroupeOptions } from "troupe";
import { describe, expect, test } from "vitest";
import {
  collect,
  EMPTY_OBJECT,
  fixture,
  PATIENT,
  plugin,
  RESIDENT,
  refusalOf,
  remembering,
  startTroupe,
  tempFolder,
} from "../../support/runtime.js";

/** What a host service answered, or why it did not. */
interface Asked {
  readonly answer?: unknown;
  readonly code?: string;
  readonly details?: Record<string, unknown>;
}

const model = fixture("models/calls-and-lists.mjs");
const askTool = (method: string, ...args: unknown[]) => ({ tool: "ask", args: { method, args } });
const ask = async (session: Session, method: string, ...args: unknown[]) =>
  (await session.command("steward.ask", { method, args })).output as Asked;

/** One turn with these calls, one in each step: the tools the model had in every step, and what came of the calls. */
async function play(session: Session, ...calls: { tool: string; args?: object }[]) {
  const turn = session.turn(JSON.stringify(calls));
  const offered = (await collect(turn)).flatMap((activity) =>
    activity.type === "text_delta" ? [activity.text.split(" ").filter(Boolean)] : [],
  );
  const outputs = (await turn).toolCalls.map(({ output }) =>
    output.status === "success" ? output.value : output.status === "failure" ? output.failure.message : output.status,
  );
  return { offered, outputs };
}
const offeredTo = async (session: Session) => (await play(session)).offered[0];

describe.each(["worker", "inline"] as const)("tool state that a plugin changes by host services, tier %s", (tier) => {
  const steward = { ...PATIENT, module: plugin("steward"), tier };
  const toolbox = { ...PATIENT, module: plugin("toolbox"), tier, optionalInChildren: true };
  const options = (path?: string): TroupeOptions => ({
    sessionWorkers: 2,
    model,
    plugins: [steward, toolbox],
    ...(path !== undefined && { store: { path } }),
  });

  // turn §8.69
  test("shows in the next model call of the same turn, is stored with the turn, and is there after reopening", async () => {
    const path = await tempFolder();
    const first = await createTroupe(options(path));
    const session = await first.session("s");
    const { offered, outputs } = await play(
      session,
      { tool: "wrench" },
      askTool("setToolMembership", ["wrench"], false),
      { tool: "wrench" },
      askTool("setToolAvailability", "hammer", "searchable"),
      { tool: "hammer" },
      askTool("setToolAvailability", "hammer", null),
      { tool: "hammer" },
    );
    expect(offered).toEqual([
      ["ask", "hammer", "lend", "wrench"],
      ["ask", "hammer", "lend", "wrench"],
      ["ask", "hammer", "lend"],
      ["ask", "hammer", "lend"],
      ["ask", "lend"],
      ["ask", "lend"],
      ["ask", "hammer", "lend"],
      ["ask", "hammer", "lend"],
    ]);
    expect(outputs).toEqual([
      "The wrench used",
      { answer: 2 },
      "The tool wrench is not available to this session now.",
      { answer: 3 },
      "The tool hammer is not available to this session now.",
      { answer: 4 },
      "The hammer used",
    ]);
    expect((await session.view()).toolGeneration).toBe(4);
    // In the write of the turn, not in one of its own.
    expect((await session.info()).revision).toBe(1);
    await first.close();

    const second = await startTroupe(options(path));
    const again = await second.session("s");
    // §15.61: restoring adopts the generation.
    expect((await again.view()).toolGeneration).toBe(4);
    expect(await offeredTo(again)).toEqual(["ask", "hammer", "lend"]);
    expect(await offeredTo(await second.session("other"))).toEqual(["ask", "hammer", "lend", "wrench"]);
    // A hook around a tool call has the services too.
    const { offered: lent } = await play(again, { tool: "lend", args: { names: ["wrench"] } });
    expect(lent).toEqual([
      ["ask", "hammer", "lend"],
      ["ask", "hammer", "lend", "wrench"],
    ]);
    expect((await again.view()).toolGeneration).toBe(5);
  });

  // §15.61 turn §8.71
  test("from a stale generation is refused; otherwise it is one further, and stored before the command is answered", async () => {
    const path = await tempFolder();
    const first = await createTroupe(options(path));
    const session = await first.session("s");
    const { answer: exported } = (await ask(session, "toolState")) as { answer: never };
    expect(Object.keys((exported as { tools: object }).tools)).toEqual(["acme.hammer", "ask", "lend", "wrench"]);
    const { tools } = exported as { tools: Record<string, object> };
    const edited = { generation: 1, tools: { ...tools, wrench: { ...tools.wrench, member: false } } };
    expect(await ask(session, "applyToolState", edited)).toEqual({ answer: 2 });
    expect(await ask(session, "applyToolState", edited)).toEqual({
      code: "tool_state_stale",
      details: { expected: 2, actual: 1 },
    });
    expect(await ask(session, "setToolsAvailability", ["hammer", "wrench"], "callable")).toEqual({ answer: 3 });
    expect(await ask(session, "setToolMembership", ["wrench", "saw"], false)).toMatchObject({ code: "tool_unknown" });
    expect(await ask(session, "setToolAvailability", "wrench", "loud")).toMatchObject({ code: "tool_state_invalid" });
    expect(await ask(session, "setToolMembership", ["hammer"], false)).toEqual({ answer: 4 });
    await first.kill({ sessionWorker: 0 });
    await first.kill({ sessionWorker: 1 });
    // What was answered was stored.
    expect(await offeredTo(session)).toEqual(["ask", "lend", "wrench"]);
    expect((await session.view()).toolGeneration).toBe(4);
    await first.close();
  });

  // §15.62
  test("says nothing of where tools come from, so that the host's own tool of the same id takes the plugin's place", async () => {
    const path = await tempFolder();
    const first = await createTroupe(options(path));
    const session = await first.session("s");
    await ask(session, "setToolMembership", ["wrench"], false);
    await ask(session, "setToolAvailability", "ask", "callable");
    const { answer } = await ask(session, "toolState");
    expect(JSON.stringify(answer)).not.toMatch(/toolbox|plugin|"home"/);
    await first.close();
    const second = await startTroupe({
      ...options(path),
      plugins: [steward],
      tools: { wrench: { description: "The host's", inputSchema: EMPTY_OBJECT, execute: () => "the host's wrench" } },
    });
    const again = await second.session("s");
    expect((await play(again, { tool: "wrench" })).outputs).toEqual([
      "The tool wrench is not available to this session now.",
    ]);
    await ask(again, "setToolMembership", ["wrench"], true);
    expect((await play(again, { tool: "wrench" })).outputs).toEqual(["the host's wrench"]);
  });

  // §15.63 §15.64 turn §8.70
  test("keeps tools whose plugin is away as orphans, and has them back with the membership they had", async () => {
    const path = await tempFolder();
    const first = await createTroupe(options(path));
    const session = await first.session("s");
    await ask(session, "setToolMembership", ["wrench"], false);
    await first.close();

    // Without the plugin, and with a tool that has the hammer's name under another id.
    const second = await createTroupe({
      ...options(path),
      plugins: [steward],
      tools: { hammer: { description: "Another", inputSchema: EMPTY_OBJECT, execute: () => "another hammer" } },
    });
    const without = await second.session("s");
    const { offered, outputs } = await play(without, { tool: "wrench" }, { tool: "hammer" }, { tool: "saw" });
    expect(offered[0]).toEqual(["ask", "hammer", "lend"]);
    expect(outputs).toEqual([
      "The tool wrench cannot run because its source is missing.",
      "another hammer",
      "There is no tool called saw.",
    ]);
    const { answer } = (await ask(without, "toolState")) as { answer: { generation: number; tools: object } };
    expect(answer).toMatchObject({
      generation: 2,
      tools: {
        "acme.hammer": { member: true, orphaned: true },
        hammer: { member: true, orphaned: false },
        wrench: { member: false, orphaned: true },
      },
    });
    // It goes round with its orphans in it; what nobody ever had is refused.
    expect(await ask(without, "applyToolState", answer)).toEqual({ answer: 3 });
    const saw = { spec: { name: "saw", description: "d", inputSchema: {} }, member: true, orphaned: false };
    const invented = { generation: 3, tools: { ...answer.tools, saw } };
    expect(await ask(without, "applyToolState", invented)).toEqual({
      code: "tool_unknown",
      details: { toolIds: ["saw"] },
    });
    await second.close();

    const third = await startTroupe(options(path));
    const back = await third.session("s");
    expect((await back.view()).toolGeneration).toBe(3);
    const returned = await play(back, { tool: "hammer" }, { tool: "wrench" });
    expect(returned.offered[0]).toEqual(["ask", "hammer", "lend"]);
    expect(returned.outputs).toEqual(["The hammer used", "The tool wrench is not available to this session now."]);
    expect(await ask(back, "setToolMembership", ["wrench"], true)).toEqual({ answer: 4 });
    expect((await play(back, { tool: "wrench" })).outputs).toEqual(["The wrench used"]);
  });

  // §15.65
  test("is inherited by a fork, goes its own way there, and a tool the fork may not have is no orphan of it", async () => {
    const troupe = await startTroupe({
      ...options(),
      plugins: [steward, toolbox, { ...PATIENT, module: plugin("root-only"), tier }],
    });
    const parent = await troupe.session("parent");
    expect((await play(parent, { tool: "spawn" })).outputs).toEqual(["spawned"]);
    await ask(parent, "setToolMembership", ["wrench"], false);
    await ask(parent, "setToolAvailability", "hammer", "callable");
    const child = await parent.fork({ id: "child" });
    expect(await offeredTo(child)).toEqual(["ask", "hammer", "lend"]);
    expect((await child.view()).toolGeneration).toBe(3);
    expect(await ask(child, "setToolMembership", ["wrench"], true)).toEqual({ answer: 4 });
    expect(await offeredTo(child)).toEqual(["ask", "hammer", "lend", "wrench"]);
    expect(await offeredTo(parent)).toEqual(["ask", "hammer", "lend", "spawn"]);
    // A tool of the root alone does not break the fork: it is an orphan there, or unknown where it is hidden.
    expect((await play(child, { tool: "spawn" })).outputs).toEqual([
      "The tool spawn cannot run because its source is missing.",
    ]);

    const narrow = await parent.fork({ id: "narrow", authority: { hiddenTools: ["hammer", "spawn"] } });
    expect(await offeredTo(narrow)).toEqual(["ask", "lend"]);
    const { answer } = (await ask(narrow, "toolState")) as { answer: { generation: number; tools: object } };
    expect([answer.generation, Object.keys(answer.tools)]).toEqual([3, ["ask", "lend", "wrench"]]);
    expect(await ask(narrow, "setToolMembership", ["hammer"], true)).toMatchObject({ code: "tool_unknown" });
    expect(await ask(narrow, "applyToolState", answer)).toEqual({ answer: 4 });
    expect((await play(narrow, { tool: "hammer" }, { tool: "spawn" })).outputs).toEqual([
      "There is no tool called hammer.",
      "There is no tool called spawn.",
    ]);

    // Without the plugin that brings them, the inherited tools wait for a source that does not come.
    const without = await parent.fork({ id: "without", authority: { withoutPlugins: ["test.toolbox"] } });
    expect((await play(without, { tool: "hammer" })).outputs).toEqual([
      "The tool hammer cannot run because its source is missing.",
    ]);
  });
});

describe.each(["worker", "inline"] as const)("a catalog contributor with state, tier %s", (tier) => {
  // §15.67
  test("decides by the state it has now: in a turn that changes it, and when it is as it was before", async () => {
    const troupe = await startTroupe({
      sessionWorkers: 1,
      model,
      plugins: [{ ...PATIENT, module: plugin("lockdown"), tier }],
      tools: { shell: { description: "d", inputSchema: EMPTY_OBJECT, execute: () => "ran" } },
    });
    const session = await troupe.session("s");
    const offered: unknown[] = [];
    for (const input of ["free", "lock", "free", "free", "lock", "lock", "look", "free"]) {
      offered.push([input, (await session.turn(input)).text]);
    }
    expect(offered).toEqual([
      ["free", "lock shell"],
      ["lock", "lock"],
      ["free", "lock shell"],
      ["free", "lock shell"],
      ["lock", "lock"],
      ["lock", "lock"],
      ["look", "lock"],
      ["free", "lock shell"],
    ]);
    const locking = await play(session, { tool: "shell" }, { tool: "lock" }, { tool: "shell" });
    expect(locking.offered).toEqual([["lock", "shell"], ["lock", "shell"], ["lock"], ["lock"]]);
    expect(locking.outputs).toEqual(["ran", null, "The tool shell is not available to this session now."]);
  });
});

test.each(["worker", "inline"] as const)(
  "a catalog in the tier %s is kept until the host has it made anew",
  async (tier) => {
    const troupe = await startTroupe({
      ...RESIDENT, // Kept in memory: a session that is opened again makes its catalog anew.
      sessionWorkers: 1,
      model,
      plugins: [remembering(plugin("takes-shell-later"), { tier })],
      tools: { shell: { description: "d", inputSchema: EMPTY_OBJECT, execute: () => "ran" } },
    });
    const session = await troupe.session("s");
    const offered = async () => (await session.turn("look")).text;
    expect([await offered(), await offered()]).toEqual(["shell", "shell"]);
    await session.refreshTools();
    expect([await offered(), await offered()]).toEqual(["", ""]);
  },
);

test.each(["worker", "inline"] as const)(
  "tools that a plugin in the tier %s would register by now are there once the host refreshes them",
  async (tier) => {
    const troupe = await startTroupe({
      ...RESIDENT, // Kept in memory: a session that is opened again has its plugins register anew.
      sessionWorkers: 1,
      model,
      plugins: [remembering(plugin("learns-tools"), { tier })],
    });
    const session = await troupe.session("s");
    expect(await offeredTo(session)).toEqual(["first"]);
    await session.command("learn", { name: "second" });
    expect(await offeredTo(session)).toEqual(["first"]);
    await session.refreshTools();
    expect(await offeredTo(session)).toEqual(["first", "second"]);
    expect((await play(session, { tool: "second" })).outputs).toEqual(["second"]);
    // A plugin that cannot register leaves the session with what it had.
    await session.command("learn", {});
    expect((await refusalOf(session.refreshTools())).code).toBe("invalid_tool");
    expect(await offeredTo(session)).toEqual(["first", "second"]);
  },
);

describe.each(["worker", "inline"] as const)("a context overlay of a plugin in the tier %s", (tier) => {
  // §15.66
  test("is what its turn has: only its tools, or its tools before the session's; the next turn has its own", async () => {
    const troupe = await startTroupe({
      sessionWorkers: 1,
      model,
      plugins: [{ ...PATIENT, module: plugin("focus"), tier }],
      tools: { shell: { description: "d", inputSchema: EMPTY_OBJECT, execute: () => "ran" } },
    });
    const session = await troupe.session("s");
    const offered = async (overlay: object) => (await session.turn(JSON.stringify(overlay))).text;
    expect(await offeredTo(session)).toEqual(["shell"]);
    expect(await offered({ includeBaseTools: false, tools: ["acme.probe"] })).toBe("probe");
    expect(await offered({ includeBaseTools: false, tools: ["acme.probe"] })).toBe("probe");
    expect(await offered({ tools: ["acme.probe", "acme.shell"] })).toBe("probe shell");
    const refused = await refusalOf(session.turn(JSON.stringify({ tools: ["nothing"] })));
    expect([refused.code, (refused.cause as { code: string }).code]).toEqual(["context_prepare_turn", "tool_unknown"]);
    expect((await play(session, { tool: "shell" }, { tool: "probe" })).outputs).toEqual([
      "ran",
      "There is no tool called probe.",
    ]);
    // None of it is a change of the session's tools.
    expect((await session.view()).toolGeneration).toBe(1);
  });
});
