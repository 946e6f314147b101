import { describe, expect, expectTypeOf, it } from "vitest";
import { z } from "zod";
import {
  type JsonObject,
  type ModelResponse,
  type ToolCall,
  type ToolOutput,
  TroupeError,
  type TurnSummary,
} from "../../../src/kernel/index.js";
import {
  abortTurn,
  definePlugin,
  deny,
  emitEvents,
  enqueueMessages,
  loadPlugin,
  queueTurn,
  replaceToolArgs,
  shortCircuitTool,
} from "../../../src/plugin/index.js";

/** These tests are read by the compiler too: a line that should not compile and does is an error of `npm run check`. */
const base = { id: "acme.test", version: "1.0.0" } as const;

describe("definePlugin", () => {
  it("gives back what it was given", () => {
    const definition = { ...base, hooks: { beforeTurn: () => undefined } };
    expect(definePlugin(definition)).toBe(definition);
  });

  it("types options and state of every hook by the schema and the state function", () => {
    const plugin = definePlugin({
      ...base,
      options: z.object({ max: z.number(), label: z.string().default("budget") }),
      state: ({ sessionId, options }) => {
        expectTypeOf(sessionId).toEqualTypeOf<string>();
        expectTypeOf(options).toEqualTypeOf<{ max: number; label: string }>();
        return { calls: 0, seen: [] as string[] };
      },
      hooks: {
        beforeTurn({ state, options, signal, input, messageCount, sessionId, turnIndex }) {
          expectTypeOf(state).toEqualTypeOf<{ calls: number; seen: string[] }>();
          expectTypeOf(options).toEqualTypeOf<{ max: number; label: string }>();
          expectTypeOf(signal).toEqualTypeOf<AbortSignal>();
          expectTypeOf({ input, sessionId }).toEqualTypeOf<{ input: string; sessionId: string }>();
          expectTypeOf({ messageCount, turnIndex }).toEqualTypeOf<{ messageCount: number; turnIndex: number }>();
        },
        beforeToolCall({ call, state }) {
          expectTypeOf(call).toEqualTypeOf<ToolCall>();
          state.calls++;
          // @ts-expect-error state has no such property
          state.count++;
        },
        afterToolCall({ output, durationMs }) {
          expectTypeOf(output).toEqualTypeOf<ToolOutput>();
          expectTypeOf(durationMs).toEqualTypeOf<number>();
        },
        assistantResponse({ response }) {
          expectTypeOf(response).toEqualTypeOf<ModelResponse>();
        },
        checkpoint({ checkpoint }) {
          expectTypeOf(checkpoint).toEqualTypeOf<"after_work" | "before_completion">();
        },
        afterTurn({ turn }) {
          expectTypeOf(turn).toEqualTypeOf<TurnSummary>();
        },
        sessionRestored({ fresh }) {
          expectTypeOf(fresh).toEqualTypeOf<boolean>();
        },
      },
    });
    expect(Object.keys(plugin.hooks ?? {})).toHaveLength(7);
  });

  it("types the arguments of each tool by its own schema, and gives it state and options", () => {
    const plugin = definePlugin({
      ...base,
      options: z.object({ unit: z.enum(["c", "f"]) }),
      state: () => ({ asked: 0 }),
      tools: {
        weather: {
          description: "The weather in a city.",
          inputSchema: z.object({ city: z.string(), days: z.number().default(1) }),
          execute(args, { state, options, callId, signal }) {
            expectTypeOf(args).toEqualTypeOf<{ city: string; days: number }>();
            expectTypeOf(state).toEqualTypeOf<{ asked: number }>();
            expectTypeOf(options).toEqualTypeOf<{ unit: "c" | "f" }>();
            expectTypeOf(callId).toEqualTypeOf<string>();
            expectTypeOf(signal).toEqualTypeOf<AbortSignal>();
            // @ts-expect-error the schema has no such property
            return args.country;
          },
        },
        plain: {
          description: "Described with JSON Schema.",
          inputSchema: { type: "object", properties: { n: { type: "number" } } },
          execute(args) {
            expectTypeOf(args).toEqualTypeOf<JsonObject>();
          },
        },
      },
    });
    expect(Object.keys(plugin.tools ?? {})).toEqual(["weather", "plain"]);
  });

  it("does not compile with a hook nobody knows or a tool without a body", () => {
    definePlugin({
      ...base,
      hooks: {
        // @ts-expect-error there is no such hook
        beforeEverything() {},
      },
    });
    definePlugin({
      ...base,
      tools: {
        // @ts-expect-error execute is missing
        lazy: { description: "Does nothing.", inputSchema: z.object({}) },
      },
    });
    // @ts-expect-error version is missing
    definePlugin({ id: "acme.test" });
  });
});

describe("what a hook may return", () => {
  it("is nothing, one directive or several, at once or later", () => {
    definePlugin({
      ...base,
      hooks: {
        beforeTurn: () => abortTurn("no", "No."),
        checkpoint: () => [enqueueMessages({ role: "user", text: "go on" }), emitEvents({ name: "e" })],
        beforeToolCall: async () => deny("no", "No."),
        afterToolCall: () => undefined,
        afterTurn: async () => {},
        assistantStream: ({ chunk }) => chunk.toUpperCase(),
        promptContributor: () => ({ slot: "guidance", content: "Be kind." }),
      },
    });
  });

  it("does not compile when its kind does not allow it", () => {
    definePlugin({
      ...base,
      hooks: {
        // @ts-expect-error there are no arguments before a turn
        beforeTurn: () => replaceToolArgs({}),
        // @ts-expect-error there is no tool at a checkpoint
        checkpoint: () => shortCircuitTool("x"),
        // @ts-expect-error a turn that has ended cannot be aborted
        afterTurn: () => abortTurn("no", "No."),
        // @ts-expect-error messages come after the call
        beforeToolCall: () => enqueueMessages({ role: "user", text: "x" }),
        // @ts-expect-error the tool has run
        afterToolCall: () => replaceToolArgs({}),
        // @ts-expect-error a lifecycle event asks for nothing
        turnPersisted: () => emitEvents({ name: "e" }),
        // @ts-expect-error there is no such slot
        promptContributor: () => ({ slot: "attic", content: "x" }),
        // @ts-expect-error a chunk is text
        assistantStream: () => ({ chunk: 1 }),
      },
    });
    definePlugin({
      ...base,
      hooks: {
        // @ts-expect-error assistant messages are the model's alone
        beforeTurn: () => enqueueMessages({ role: "assistant", text: "x" }),
        // @ts-expect-error also not in a list
        checkpoint: () => [emitEvents({ name: "e" }), replaceToolArgs({})],
        // @ts-expect-error also not later
        afterTurn: async () => abortTurn("no", "No."),
      },
    });
  });
});

describe("jobs", () => {
  it("are typed from their schemas and the options, and have a step's own type", () => {
    definePlugin({
      ...base,
      options: z.object({ max: z.number() }),
      jobs: {
        index: {
          input: z.object({ folder: z.string() }),
          async run({ folder }, { options, step, sleep, attempt }) {
            expectTypeOf(folder).toEqualTypeOf<string>();
            expectTypeOf(options.max).toEqualTypeOf<number>();
            expectTypeOf(attempt).toEqualTypeOf<number>();
            expectTypeOf(await step("count", () => 7)).toEqualTypeOf<number>();
            await sleep(new Date());
            // @ts-expect-error a time is a date or a number
            await sleep("tomorrow");
          },
        },
      },
    });
    // @ts-expect-error a job has an input schema
    definePlugin({ ...base, jobs: { bare: { run: () => null } } });
  });

  it("are refused where they are none", async () => {
    const job = { input: { type: "object" }, run: () => null };
    const problem = async (jobs: unknown, more: object = {}) => {
      const error = await loadPlugin({ id: "p", version: "1.0.0", jobs, ...more }, undefined, "the test").catch(
        (refused: unknown) => refused,
      );
      return error instanceof TroupeError ? `${error.code}: ${error.message}` : "none";
    };
    expect(await problem({ work: job })).toBe("none");
    expect(await problem({ work: { input: job.input } })).toContain(
      "job work of plugin p needs an input schema and a run",
    );
    expect(await problem({ work: { ...job, pools: true } })).toContain("pools");
    expect(await problem({ work: { ...job, pool: "yes" } })).toContain(
      "the pool of job work of plugin p is true or false",
    );
    expect(await problem(7)).toContain("the jobs of plugin p are not an object");
    expect(await problem({ work: job }, { protocol: {} })).toContain("Put the jobs into a plugin of their own");
  });
});

describe("operations and matchers", () => {
  it("are typed from their schemas, the state and the options", () => {
    definePlugin({
      ...base,
      options: z.object({ max: z.number() }),
      state: () => ({ notes: [] as string[] }),
      queries: {
        "notes.find": {
          description: "d",
          input: z.object({ word: z.string() }),
          run: (args, { state, options, sessionId }) => {
            expectTypeOf(args).toEqualTypeOf<{ word: string }>();
            expectTypeOf(state.notes).toEqualTypeOf<string[]>();
            expectTypeOf(options.max).toEqualTypeOf<number>();
            expectTypeOf(sessionId).toEqualTypeOf<string | undefined>();
            return state.notes;
          },
        },
      },
      commands: {
        "notes.add": {
          description: "d",
          input: z.object({ text: z.string() }),
          run: ({ text }, { state }) => ({ output: state.notes.push(text), directives: [queueTurn(text)] }),
        },
        "notes.bare": {
          description: "d",
          input: z.object({}),
          // @ts-expect-error a command says what it came to: { output }
          run: () => 42,
        },
      },
      hooks: {
        beforeToolCall: {
          tools: ["shell", "fs_*"],
          run: ({ call, state }) => {
            expectTypeOf(call.toolName).toEqualTypeOf<string>();
            expectTypeOf(state.notes).toEqualTypeOf<string[]>();
            return deny("no", "No.");
          },
        },
        // @ts-expect-error only hooks around tool calls can name tools
        beforeTurn: { tools: ["shell"], run: () => undefined },
      },
    });
  });
});

describe("directives", () => {
  it("are data", () => {
    expect(abortTurn("no_budget", "None left.")).toEqual({
      kind: "abort_turn",
      code: "no_budget",
      message: "None left.",
    });
    expect(enqueueMessages({ role: "user", text: "a" }, { role: "system", text: "b" })).toEqual({
      kind: "enqueue_messages",
      messages: [
        { role: "user", text: "a" },
        { role: "system", text: "b" },
      ],
    });
    expect(replaceToolArgs({ a: 1 })).toEqual({ kind: "replace_tool_args", args: { a: 1 } });
    expect(shortCircuitTool([1])).toEqual({
      kind: "short_circuit_tool",
      output: { status: "success", value: [1] },
    });
    expect(deny("no_shell", "Off limits.")).toEqual({
      kind: "short_circuit_tool",
      output: {
        status: "failure",
        failure: { kind: "permission_denied", code: "no_shell", message: "Off limits." },
      },
    });
    expect(emitEvents({ name: "a" }, { name: "b", payload: 1 })).toEqual({
      kind: "emit_events",
      events: [{ name: "a" }, { name: "b", payload: 1 }],
    });
  });
});
