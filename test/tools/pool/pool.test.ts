import { once } from "node:events";
import { Worker } from "node:worker_threads";
import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { systemClock } from "../../../dist/src/async/index.js";
import {
  executeTool,
  type RegisteredTool,
  registerTool,
  ToolPool,
  ToolRegistry,
} from "../../../dist/src/tools/index.js";
import { Deadlines } from "../../../dist/src/wire/index.js";

// Pool threads need built JavaScript, so the pool is tested as built.
const entry = new URL("../../../dist/workers/tool.js", import.meta.url);
const fixture = (name: string) => new URL(`../fixtures/${name}.mjs`, import.meta.url).href;
const never = () => new AbortController().signal;

let pool: ToolPool;
beforeEach(() => {
  pool = new ToolPool({ clock: systemClock, entry, maxThreads: 1 });
});
afterEach(() => pool.close());

async function toolOf(name: string): Promise<RegisteredTool> {
  const module = fixture(name);
  return registerTool(name, await pool.describe(module), { kind: "pool", module });
}

/** A call straight to the pool. */
function run(tool: RegisteredTool, args: unknown = {}, signal: AbortSignal = never()) {
  return pool.run(tool, args as never, contextOf(tool, signal));
}

function contextOf({ timeoutMs, cancelGraceMs }: RegisteredTool, signal: AbortSignal = never()) {
  return { sessionId: "s", turnId: "t", callId: "c", completionKey: "k", timeoutMs, cancelGraceMs, signal };
}

/** A call as the session makes it. */
async function execute(tool: RegisteredTool, args: unknown = {}, signal: AbortSignal = never()) {
  const elsewhere = { run: () => expect.unreachable() };
  const { output } = await executeTool({
    deadlines: new Deadlines(systemClock),
    registry: new ToolRegistry([tool]),
    homes: { host: elsewhere, plugin: elsewhere, pool },
    call: { callId: "c", toolName: tool.spec.name, args: args as never },
    hidden: new Set(),
    sessionId: "s",
    turnId: "t",
    signal,
  });
  return output;
}

const ok = { status: "success", value: "ok" };
const failure = (kind: string, code: string, message: unknown = expect.any(String)) => ({
  status: "failure",
  failure: { kind, code, message },
});

/** TypeScript's lib of our target does not know it yet; Node 20 does. */
const { waitAsync } = Atomics as unknown as {
  waitAsync(cell: Int32Array, index: number, value: number): { readonly value: unknown };
};

/** A cell a spinning tool sets when it has the thread. */
function stage() {
  const cell = new Int32Array(new SharedArrayBuffer(4));
  return { cell, taken: async () => void (await waitAsync(cell, 0, 0).value) };
}

describe("describing a tool module", () => {
  it("gives the data of its default export", async () => {
    expect(await pool.describe(fixture("echo"))).toEqual({
      description: "Gives back its arguments.",
      inputSchema: { type: "object" },
    });
  });

  it("gives a Standard Schema as JSON Schema, and the tool's own time limit", async () => {
    expect(await pool.describe(fixture("zod"))).toMatchObject({
      inputSchema: { type: "object", properties: { n: { type: "string" } }, required: ["n"] },
      timeoutMs: 1234,
    });
  });

  it.each([
    ["a module that is not there", "not-there", "tool_module_not_found"],
    ["a module that imports one that is not there", "broken-import", "tool_module_invalid"],
    ["a module without a default export", "no-default", "tool_module_invalid"],
    ["a module that exports something else", "no-tool", "tool_module_invalid"],
    ["a schema that JSON Schema cannot say", "undescribable", "invalid_tool_schema"],
  ])("refuses %s", async (_, name, code) => {
    await expect(pool.describe(fixture(name))).rejects.toMatchObject({ code, message: expect.stringContaining(name) });
  });

  it("gives up on a module that never finishes loading", async () => {
    await expect(pool.describe(fixture("never-loads"), { loadMs: 100 })).rejects.toMatchObject({
      code: "tool_load_timeout",
      message: `The tool module ${fixture("never-loads")} was not loaded within 100 ms: it, or a module it imports, is still in a top-level await or computing. Move what it waits for into execute, or give it more time with loadMs.`,
    });
    expect(await pool.describe(fixture("echo"))).toMatchObject({ description: "Gives back its arguments." });
  });

  it("says what is wrong with the export", async () => {
    await expect(pool.describe(fixture("no-tool"))).rejects.toThrow(
      `The tool module ${fixture("no-tool")} cannot be used: its default export: execute must be a function, not undefined.`,
    );
  });
});

describe("a tool in the pool", () => {
  it("gets its arguments and its context, and answers", async () => {
    expect(await run(await toolOf("echo"), { n: 1 })).toEqual({
      args: { n: 1 },
      sessionId: "s",
      turnId: "t",
      callId: "c",
    });
  });

  it("gets what its Standard Schema made of the arguments", async () => {
    const halve = await toolOf("zod");
    expect(await execute(halve, { n: "8" })).toEqual({ status: "success", value: 4 });
    expect(await execute(halve, { n: "7" })).toEqual(
      failure("invalid_request", "invalid_tool_args", expect.stringContaining("n: must be even")),
    );
    expect(await execute(halve, { n: 8 })).toEqual(
      failure("invalid_request", "invalid_tool_args", expect.stringContaining("n must be string")),
    );
  });

  it("sees an empty environment, and a signal that has not fired", async () => {
    const tool = await toolOf("misbehave");
    expect(await run(tool, { way: "environment" })).toEqual({});
    expect(await run(tool, { way: "signal" })).toBe(false);
  });

  it("fails with what it throws, of which the model reads only that it failed", async () => {
    const tool = await toolOf("misbehave");
    await expect(run(tool, { way: "throw" })).rejects.toMatchObject({
      code: "tool_failed",
      message: "thrown by the tool",
      cause: { name: "Custom", message: "thrown by the tool" },
    });
    expect(await execute(tool, { way: "throw" })).toEqual(failure("execution", "tool_failed", "misbehave failed"));
  });

  it.each(["function", "cycle"])("fails when its result holds a %s", async (way) => {
    const tool = await toolOf("misbehave");
    expect(await execute(tool, { way })).toEqual(failure("execution", "tool_result_unserialisable"));
  });

  it.each(["exit", "crash"])("loses its thread by %s, and the next call gets another", async (way) => {
    const tool = await toolOf("misbehave");
    expect(await execute(tool, { way })).toEqual(failure("unavailable", "tool_worker_lost"));
    expect(await execute(tool, { way: "ok" })).toEqual(ok);
  });

  it("answers and keeps its thread when a promise of its own is rejected and nobody handles that", async () => {
    const tool = await toolOf("misbehave");
    expect(await execute(tool, { way: "reject" })).toEqual(ok);
    expect(pool.stats().threads).toBe(1);
  });

  it("fails alone when it wants more memory than a thread has", async () => {
    const small = new ToolPool({
      clock: systemClock,
      entry,
      maxThreads: 1,
      resourceLimits: { maxOldGenerationSizeMb: 32 },
    });
    const tool = await toolOf("misbehave");
    const ctx = contextOf(tool);
    await expect(small.run(tool, { way: "memory" }, ctx)).rejects.toMatchObject({ code: "tool_out_of_memory" });
    expect(await small.run(tool, { way: "ok" }, ctx)).toBe("ok");
    await small.close();
  });

  it("may crash its thread after the answer without hurting the host", async () => {
    const tool = await toolOf("misbehave");
    const { cell } = stage();
    expect(await run(tool, { way: "crashLater", cell })).toBe("answered");
    Atomics.store(cell, 0, 1);
    Atomics.notify(cell, 0);
    await vi.waitFor(() => expect(pool.stats().threads).toBe(0));
    expect(await run(tool, { way: "ok" })).toBe("ok");
  });

  it("fails at its time limit, and the next call works", async () => {
    const tool = { ...(await toolOf("misbehave")), timeoutMs: 100 };
    expect(await execute(tool, { way: "hang" })).toEqual(failure("timeout", "tool_timeout"));
    expect(await execute({ ...tool, timeoutMs: 60_000 }, { way: "ok" })).toEqual(ok);
  });
});

describe("a tool in the pool that is told to stop", () => {
  const patient = async () => ({ ...(await toolOf("stops")), cancelGraceMs: 60_000 });

  it.each(["listens", "looks"])("and %s may still finish within its grace, and keeps its thread", async (way) => {
    const stops = await patient();
    const { cell, taken } = stage();
    const turn = new AbortController();
    const thread = await run(stops, { way: "thread" });
    const stopping = execute(stops, { way, cell }, turn.signal);
    await taken();
    turn.abort();
    Atomics.store(cell, 0, 2);
    expect(await stopping).toEqual({ status: "success", value: "stopped by itself" });
    expect(await run(stops, { way: "thread" })).toBe(thread);
  });

  it("at its time limit may still finish within its grace", async () => {
    const { cell } = stage();
    const stops = { ...(await patient()), timeoutMs: 50 };
    expect(await execute(stops, { way: "listens", cell })).toEqual({ status: "success", value: "stopped by itself" });
  });

  it.each(["throws", "exits"])("and %s has stopped, not failed", async (way) => {
    const { cell, taken } = stage();
    const turn = new AbortController();
    const stopping = execute(await patient(), { way, cell }, turn.signal);
    await taken();
    turn.abort();
    expect(await stopping).toEqual({ status: "cancelled", message: "The call of stops was cancelled." });
  });

  it.each([0, 1])("and does not, has its thread stopped when a grace of %i ms is over", async (cancelGraceMs) => {
    const stops = { ...(await toolOf("stops")), cancelGraceMs };
    const { cell, taken } = stage();
    const turn = new AbortController();
    const thread = await run(stops, { way: "thread" });
    const stopping = run(stops, { way: "ignores", cell }, turn.signal);
    await taken();
    turn.abort();
    await expect(stopping).rejects.toMatchObject({ code: "aborted" });
    expect(await run(stops, { way: "thread" })).not.toBe(thread);
  });
});

describe("aborting a tool in the pool", () => {
  it("ends an infinite loop, and the next call works", async () => {
    const spin = await toolOf("spin");
    const { cell, taken } = stage();
    const turn = new AbortController();
    const spinning = execute(spin, { cell }, turn.signal);
    await taken();
    turn.abort();
    expect(await spinning).toEqual({ status: "cancelled", message: "The call of spin was cancelled." });
    expect(await execute(await toolOf("misbehave"), { way: "ok" })).toEqual(ok);
  });

  it("ends an infinite loop at its time limit", async () => {
    const spin = { ...(await toolOf("spin")), timeoutMs: 100 };
    const { cell } = stage();
    expect(await execute(spin, { cell })).toEqual(failure("timeout", "tool_timeout"));
    expect(await execute(await toolOf("misbehave"), { way: "ok" })).toEqual(ok);
  });

  it("lets a call that waits behind the loop run", async () => {
    const spin = await toolOf("spin");
    const misbehave = await toolOf("misbehave");
    const { cell, taken } = stage();
    const controller = new AbortController();
    const spinning = run(spin, { cell }, controller.signal);
    const waiting = run(misbehave, { way: "ok" });
    await taken();
    expect(pool.stats()).toMatchObject({ running: 1, waiting: 1 });
    controller.abort();
    await expect(spinning).rejects.toMatchObject({ code: "aborted" });
    expect(await waiting).toBe("ok");
  });

  it("takes a call that waits out of the queue", async () => {
    const spin = await toolOf("spin");
    const misbehave = await toolOf("misbehave");
    const { cell, taken } = stage();
    const [first, second] = [new AbortController(), new AbortController()];
    const spinning = run(spin, { cell }, first.signal);
    const waiting = run(misbehave, { way: "ok" }, second.signal);
    await taken();
    second.abort();
    await expect(waiting).rejects.toMatchObject({ code: "aborted" });
    expect(pool.stats()).toMatchObject({ running: 1, waiting: 0 });
    first.abort();
    await expect(spinning).rejects.toMatchObject({ code: "aborted" });
  });

  it("refuses a call that is aborted before it starts", async () => {
    await expect(run(await toolOf("echo"), {}, AbortSignal.abort())).rejects.toMatchObject({ code: "aborted" });
  });
});

describe("the pool", () => {
  it("starts no thread before it is used", () => {
    expect(pool.stats()).toEqual({ threads: 0, running: 0, waiting: 0 });
  });

  it("runs as many calls at once as it has threads", async () => {
    const two = new ToolPool({ clock: systemClock, entry, maxThreads: 2 });
    const spin = await toolOf("spin");
    const ctx = contextOf(spin);
    const stages = [stage(), stage()];
    const calls = stages.map(({ cell }) => two.run(spin, { cell } as never, ctx).catch((error) => error.code));
    await Promise.all(stages.map(({ taken }) => taken()));
    expect(two.stats()).toMatchObject({ threads: 2, running: 2, waiting: 0 });
    await two.close();
    expect(await Promise.all(calls)).toEqual(["tool_pool_closed", "tool_pool_closed"]);
  });

  it("answers every one of many calls, however few threads there are", async () => {
    const echo = await toolOf("echo");
    const calls = Array.from({ length: 50 }, (_, n) => run(echo, n));
    expect((await Promise.all(calls)).map((answer) => (answer as { args: number }).args)).toEqual(
      Array.from({ length: 50 }, (_, n) => n),
    );
  });

  it("stops a running loop when it closes, refuses what waits and what comes later, and leaves no thread", async () => {
    const spin = await toolOf("spin");
    const echo = await toolOf("echo");
    const { cell, taken } = stage();
    const spinning = run(spin, { cell }).catch((error) => error.code);
    const waiting = run(echo).catch((error) => error.code);
    await taken();
    await pool.close();
    expect(await Promise.all([spinning, waiting])).toEqual(["tool_pool_closed", "tool_pool_closed"]);
    await expect(run(echo)).rejects.toMatchObject({ code: "tool_pool_closed" });
    await expect(pool.describe(fixture("echo"))).rejects.toMatchObject({ code: "tool_pool_closed" });
    expect(pool.stats()).toMatchObject({ threads: 0, running: 0, waiting: 0 });
  });

  it("waits on close for a thread that an abort is still stopping", async () => {
    const spin = await toolOf("spin");
    const { cell, taken } = stage();
    const controller = new AbortController();
    const spinning = run(spin, { cell }, controller.signal).catch((error) => error.code);
    await taken();
    controller.abort();
    expect(await spinning).toBe("aborted");
    await pool.close();
    expect(pool.stats().threads).toBe(0);
  });

  it("closes twice, and without ever having been used", async () => {
    await pool.close();
    await pool.close();
  });

  it("fails its calls when its threads cannot start", async () => {
    const broken = new ToolPool({
      clock: systemClock,
      entry: new URL("../fixtures/broken-import.mjs", import.meta.url),
      maxThreads: 1,
    });
    const lost = {
      code: "tool_worker_lost",
      message: expect.stringMatching(/^The thread of the tool could not start: Cannot find module .*not-there\.mjs/),
    };
    await expect(broken.describe(fixture("echo"))).rejects.toMatchObject(lost);
    const together = [broken.describe(fixture("echo")), broken.describe(fixture("zod"))];
    for (const result of await Promise.allSettled(together)) {
      expect(result).toMatchObject({ status: "rejected", reason: lost });
    }
    await broken.close();
  });

  it("blames the arguments when they cannot cross to a thread", async () => {
    const echo = await toolOf("echo");
    await expect(run(echo, { a: () => 1 })).rejects.toMatchObject({ code: "invalid_tool_args" });
    expect(await run(echo, 1)).toMatchObject({ args: 1 });
  });

  it("closes while its first call is starting", async () => {
    const described = pool.describe(fixture("echo")).catch((error) => error.code);
    await pool.close();
    expect(await described).toBe("tool_pool_closed");
    expect(pool.stats()).toMatchObject({ threads: 0, running: 0 });
  });

  it("refuses a tool that lives elsewhere", async () => {
    const tool = registerTool("a", { description: "a", inputSchema: {} }, { kind: "host" });
    await expect(run(tool)).rejects.toMatchObject({ code: "tool_unavailable" });
  });

  it("works inside a worker, and leaves nothing there that would keep it alive", async () => {
    const { cell } = stage();
    const worker = new Worker(new URL("../fixtures/nested.mjs", import.meta.url), { workerData: { cell } });
    const [[message], [exitCode]] = await Promise.all([once(worker, "message"), once(worker, "exit")]);
    expect(message).toEqual({ first: { n: 1 }, aborted: "aborted", second: { n: 2 }, threads: 0 });
    expect(exitCode).toBe(0);
  });
});
