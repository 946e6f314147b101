import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { z } from "zod";
import { type Json, TroupeError } from "../../src/kernel/index.js";
import { defineTool } from "../../src/plugin/tool.js";
import {
  describeTool,
  executeTool,
  type HomeContext,
  registerTool,
  runHere,
  type ToolAbsence,
  type ToolHome,
  type ToolLookup,
  ToolRegistry,
} from "../../src/tools/index.js";

const absent: ToolHome = {
  run() {
    throw new Error("this home has no tools");
  },
};

interface Options {
  readonly args?: Json;
  readonly hidden?: readonly string[];
  readonly signal?: AbortSignal;
  readonly timeoutMs?: number;
}

/** One call of a tool `probe` whose home does `run`. */
async function call(run: ToolHome["run"], options: Options = {}) {
  const { output } = await execution(run, options);
  return output;
}

function execution(run: ToolHome["run"], options: Options = {}) {
  const inputSchema = { type: "object", properties: { n: { type: "number" } } };
  const probe = registerTool(
    "probe",
    { description: "Probes.", inputSchema, timeoutMs: options.timeoutMs ?? 1000 },
    { kind: "host" },
  );
  return executeTool({
    registry: new ToolRegistry([probe]),
    homes: { host: { run }, plugin: absent, pool: absent },
    call: { callId: "c1", toolName: "probe", args: options.args ?? {} },
    hidden: new Set(options.hidden),
    sessionId: "s1",
    turnId: "t1",
    signal: options.signal ?? new AbortController().signal,
  });
}

const failure = (kind: string, code: string, message: unknown = expect.any(String)) => ({
  status: "failure",
  failure: { kind, code, message },
});

describe("a tool call that succeeds", () => {
  it("gives what its home answers, now or later", async () => {
    expect(await call(() => ({ a: 1 }))).toEqual({ status: "success", value: { a: 1 } });
    expect(await call(async () => "later")).toEqual({ status: "success", value: "later" });
    expect(await call(async () => undefined)).toEqual({ status: "success", value: null });
  });

  it("tells the home which call it is", async () => {
    let seen: HomeContext | undefined;
    await call((_tool, _args, ctx) => {
      seen = { ...ctx };
    });
    const completionKey = '["s1","t1","c1"]';
    const facts = { callId: "c1", sessionId: "s1", turnId: "t1", timeoutMs: 1000, completionKey };
    expect(seen).toEqual({ ...facts, signal: seen?.signal });
    expect(seen?.signal.aborted).toBe(false);
  });

  it("goes to the home of its tool", async () => {
    const named = (name: string): ToolHome => ({ run: (tool) => `${name} ran ${tool.spec.name}` });
    const described = { description: "x", inputSchema: {} };
    const registry = new ToolRegistry([
      registerTool("a", described, { kind: "host" }),
      registerTool("b", described, { kind: "plugin", pluginId: "acme.x" }),
      registerTool("c", described, { kind: "pool", module: "file:///c.js" }),
    ]);
    const answers = ["a", "b", "c"].map((toolName) =>
      executeTool({
        registry,
        homes: { host: named("host"), plugin: named("plugin"), pool: named("pool") },
        call: { callId: toolName, toolName, args: {} },
        hidden: new Set(),
        sessionId: "s1",
        turnId: "t1",
        signal: new AbortController().signal,
      }),
    );
    expect((await Promise.all(answers)).map(({ output }) => output)).toEqual([
      { status: "success", value: "host ran a" },
      { status: "success", value: "plugin ran b" },
      { status: "success", value: "pool ran c" },
    ]);
  });
});

describe("whether the tool ran at all", () => {
  it("is said of every end: there is nothing to review of a call that never got to its tool", async () => {
    const ran = async (run: ToolHome["run"], options?: Options) => (await execution(run, options)).ran;
    const throws = () => {
      throw new Error("no luck");
    };
    expect(await ran(() => "now")).toBe(true);
    expect(await ran(async () => "later")).toBe(true);
    expect(await ran(throws)).toBe(true);
    expect(await ran(async () => throws())).toBe(true);
    expect(await ran(() => "now", { hidden: ["probe"] })).toBe(false);
    expect(await ran(() => "now", { args: { n: "not a number" } })).toBe(false);
    expect(await ran(() => "now", { signal: AbortSignal.abort() })).toBe(false);
  });
});

describe("a tool call that is refused", () => {
  const never: ToolHome["run"] = () => expect.unreachable();

  it("names a tool that does not exist", async () => {
    const { output } = await executeTool({
      registry: new ToolRegistry([]),
      homes: { host: absent, plugin: absent, pool: absent },
      call: { callId: "c", toolName: "nothing", args: {} },
      hidden: new Set(),
      sessionId: "s",
      turnId: "t",
      signal: new AbortController().signal,
    });
    expect(output).toEqual(failure("unavailable", "tool_unavailable", "There is no tool called nothing."));
  });

  it("says the same of a hidden tool", async () => {
    expect(await call(never, { hidden: ["probe"] })).toEqual(
      failure("unavailable", "tool_unavailable", "There is no tool called probe."),
    );
  });

  const lookup = (registry: ToolLookup, hidden: readonly string[] = []) =>
    executeTool({
      registry,
      homes: { host: { run: never }, plugin: absent, pool: absent },
      call: { callId: "c", toolName: "weather", args: "not even an object" },
      hidden: new Set(hidden),
      sessionId: "s",
      turnId: "t",
      signal: new AbortController().signal,
    }).then(({ output }) => output);

  it.each<[ToolAbsence | undefined, string]>([
    [undefined, "There is no tool called weather."],
    ["unknown", "There is no tool called weather."],
    ["unavailable", "The tool weather is not available to this session now."],
    ["orphaned", "The tool weather cannot run because its source is missing."],
  ])("is of a tool that is not there, and says why: %s", async (why, message) => {
    expect(await lookup({ get: () => undefined, whyNot: () => why })).toEqual(
      failure("unavailable", "tool_unavailable", message),
    );
  });

  it("is of a hidden tool, which is not even looked up", async () => {
    expect(await lookup({ get: () => expect.unreachable(), whyNot: () => expect.unreachable() }, ["weather"])).toEqual(
      failure("unavailable", "tool_unavailable", "There is no tool called weather."),
    );
  });

  it.each<[Json, string]>([
    [{ n: 1, unit: "F" }, 'The arguments do not fit the tool\'s schema: unit must be equal to constant: "C".'],
    [{ n: "x", unit: "C" }, "The arguments do not fit the tool's schema: n must be number."],
  ])(
    "has arguments that fit only one of two schemas, the tool's and the one the model saw: %j",
    async (args, message) => {
      const described = { description: "x", inputSchema: { type: "object", properties: { n: { type: "number" } } } };
      const tool = {
        ...registerTool("weather", described, { kind: "host" }),
        shownSchema: { type: "object", properties: { unit: { const: "C" } } },
      };
      const { output } = await executeTool({
        registry: { get: () => tool },
        homes: { host: { run: never }, plugin: absent, pool: absent },
        call: { callId: "c", toolName: "weather", args },
        hidden: new Set(),
        sessionId: "s",
        turnId: "t",
        signal: new AbortController().signal,
      });
      expect(output).toEqual(failure("invalid_request", "invalid_tool_args", message));
    },
  );

  it("has arguments that do not fit", async () => {
    expect(await call(never, { args: { n: "x" } })).toEqual(
      failure("invalid_request", "invalid_tool_args", "The arguments do not fit the tool's schema: n must be number."),
    );
  });

  it("has arguments its Standard Schema refuses, though they fit the JSON Schema of it", async () => {
    const even = defineTool({
      description: "Halves.",
      inputSchema: z.object({ n: z.number().refine((n) => n % 2 === 0, "must be even") }),
      execute: ({ n }) => n / 2,
    });
    const registry = new ToolRegistry([registerTool("halve", describeTool("tool halve", even), { kind: "host" })]);
    const halve = async (n: number) => {
      const { output } = await executeTool({
        registry,
        homes: { host: { run: (_, args, ctx) => runHere(even, args, ctx) }, plugin: absent, pool: absent },
        call: { callId: "c", toolName: "halve", args: { n } },
        hidden: new Set(),
        sessionId: "s",
        turnId: "t",
        signal: new AbortController().signal,
      });
      return output;
    };
    expect(await halve(4)).toEqual({ status: "success", value: 2 });
    expect(await halve(3)).toEqual(
      failure("invalid_request", "invalid_tool_args", expect.stringContaining("n: must be even")),
    );
  });

  it("comes when the turn is already cancelled", async () => {
    expect(await call(never, { signal: AbortSignal.abort() })).toEqual({
      status: "cancelled",
      message: "The call of probe was cancelled.",
    });
  });
});

describe("a tool call whose home throws", () => {
  const throwing = (thrown: unknown) => [
    () => {
      throw thrown;
    },
    () => Promise.reject(thrown),
  ];

  it.each([
    ["any error", new RangeError("too far"), failure("execution", "tool_failed", "too far")],
    ["a string", "no", failure("execution", "tool_failed", "no")],
    ["nothing at all", undefined, failure("execution", "tool_failed", "undefined")],
    ["a code of its own", new TroupeError("tool_quota", "used up"), failure("execution", "tool_quota", "used up")],
    ["a code that is no tool's", new TroupeError("mailbox_full", "full"), failure("execution", "tool_failed", "full")],
    [
      "bad arguments",
      new TroupeError("invalid_tool_args", "bad"),
      failure("invalid_request", "invalid_tool_args", "bad"),
    ],
    ["a lost thread", new TroupeError("worker_lost", "gone"), failure("unavailable", "tool_worker_lost", "gone")],
    ["a deadline of the wire", new TroupeError("call_timeout", "late"), failure("timeout", "tool_timeout", "late")],
    [
      "a missing module",
      new TroupeError("tool_module_not_found", "x"),
      failure("unavailable", "tool_module_not_found"),
    ],
    ["an inherited name as code", new TroupeError("constructor", "x"), failure("execution", "tool_failed", "x")],
  ])("fails with %s", async (_, thrown, expected) => {
    for (const run of throwing(thrown)) expect(await call(run)).toEqual(expected);
  });

  it("fails when the answer is a broken promise", async () => {
    const broken = {
      // biome-ignore lint/suspicious/noThenProperty: a foreign thenable is the case
      then() {
        throw new Error("broken");
      },
    };
    expect(await call(() => broken)).toEqual(failure("execution", "tool_failed", "broken"));
  });

  it.each([
    ["a function", () => 1],
    ["a bigint", 1n],
    ["a symbol", Symbol("s")],
  ])("fails when the answer is %s", async (_, value) => {
    expect(await call(() => value)).toEqual(failure("execution", "tool_result_unserialisable"));
    expect(await call(async () => value)).toEqual(failure("execution", "tool_result_unserialisable"));
  });

  it("fails when the answer refers to itself", async () => {
    const cycle: Record<string, unknown> = {};
    cycle.self = cycle;
    expect(await call(() => cycle)).toEqual(failure("execution", "tool_result_unserialisable"));
  });
});

describe("a tool call that hangs", () => {
  beforeEach(() => {
    vi.useFakeTimers({ toFake: ["setTimeout", "clearTimeout", "performance"] });
  });
  afterEach(() => {
    vi.useRealTimers();
  });

  const hang = (seen: { signal?: AbortSignal }) => (_tool: unknown, _args: unknown, ctx: HomeContext) => {
    seen.signal = ctx.signal;
    return new Promise(() => {});
  };

  it("fails at its time limit and tells its home to stop", async () => {
    const seen: { signal?: AbortSignal } = {};
    const output = call(hang(seen), { timeoutMs: 250 });
    await vi.advanceTimersByTimeAsync(250);
    expect(await output).toEqual(failure("timeout", "tool_timeout", "probe did not finish within 250 ms."));
    expect(seen.signal?.reason).toMatchObject({ code: "tool_timeout" });
  });

  it("is not disturbed before its time limit", async () => {
    const seen: { signal?: AbortSignal } = {};
    void call(hang(seen), { timeoutMs: 250 });
    await vi.advanceTimersByTimeAsync(249);
    expect(seen.signal?.aborted).toBe(false);
  });

  it("is cancelled with the turn, and tells its home to stop with the turn's reason", async () => {
    const seen: { signal?: AbortSignal } = {};
    const turn = new AbortController();
    const output = call(hang(seen), { signal: turn.signal });
    turn.abort("changed my mind");
    expect(await output).toEqual({ status: "cancelled", message: "The call of probe was cancelled." });
    expect(seen.signal?.reason).toBe("changed my mind");
  });

  it("hands an aborted signal to a home that asks for it late", async () => {
    const turn = new AbortController();
    let late: HomeContext | undefined;
    const output = call(
      (_tool, _args, ctx) => {
        late = ctx;
        return new Promise(() => {});
      },
      { signal: turn.signal },
    );
    turn.abort();
    await output;
    expect(late?.signal.aborted).toBe(true);
  });

  it("needs no timer when its home answers at once", async () => {
    await call(() => 1, { timeoutMs: 777 });
    expect(vi.getTimerCount()).toBe(0);
  });

  it("shares one timer with every call of the same limit", async () => {
    const calls = Array.from({ length: 20 }, () => call(hang({}), { timeoutMs: 333 }));
    expect(vi.getTimerCount()).toBe(1);
    await vi.advanceTimersByTimeAsync(333);
    expect(await Promise.all(calls)).toEqual(Array(20).fill(failure("timeout", "tool_timeout")));
  });
});

it("does not warn of a leak when one turn makes many calls", async () => {
  const warnings: Error[] = [];
  const onWarning = (warning: Error) => warnings.push(warning);
  process.on("warning", onWarning);
  const turn = new AbortController();
  const calls = Array.from({ length: 20 }, () => call(() => new Promise(() => {}), { signal: turn.signal }));
  turn.abort();
  await Promise.all(calls);
  await new Promise(setImmediate);
  process.off("warning", onWarning);
  expect(warnings).toEqual([]);
});
