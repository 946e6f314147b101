import { describe, expect, it } from "vitest";
import {
  type ModelEvent,
  NO_USAGE,
  type Owned,
  type PluginEvent,
  TroupeError,
  type UntimedActivity,
} from "../../../src/kernel/index.js";
import type { HookFacts } from "../../../src/plugin/index.js";
import type { SessionHooks } from "../../../src/session/plugins/session-hooks.js";
import { StreamPump } from "../../../src/session/turn/stream.js";

type StreamHook = (chunk: string, facts: HookFacts["assistant_stream"]) => unknown;

const text = (value: string, blockId = "1"): ModelEvent => ({ type: "text_delta", blockId, text: value });
const whole = (value: string, blockId = "1"): ModelEvent => ({ type: "text", blockId, text: value });
const reasoning = (value: string, blockId = "r"): ModelEvent => ({ type: "reasoning_delta", blockId, text: value });
const call = (callId: string): ModelEvent => ({ type: "tool_call", callId, toolName: "look", argsText: "{}" });
const USAGE = { ...NO_USAGE, inputTokens: 7, outputTokens: 3 };
const FINISH: ModelEvent = { type: "finish", reason: "stop", usage: USAGE };
const FACTS = { sessionId: "s", turnId: "t", turnIndex: 0, step: 0 };

/** A pump whose plugins are plain functions; a hook that gets no answer waits until `answer` is called. */
function pumpWith(
  plugins: Readonly<Record<string, StreamHook>>,
  projectProse?: (text: string) => string,
  /** The plugins that are told when a block is over. */
  told: readonly string[] = [],
) {
  const activities: UntimedActivity[] = [];
  const events: Owned<PluginEvent>[] = [];
  const chunks: string[] = [];
  const hooks = {
    has: (kind: string) =>
      kind === "assistant_prose_projector" ? projectProse !== undefined : Object.keys(plugins).length > 0,
    only: async (
      _: string,
      facts: HookFacts["assistant_prose_projector"],
      __?: object,
      read: (answer: unknown) => unknown = (answer) => answer,
    ) => read(await projectProse?.(facts.text)),
    hasFinal: told.length > 0,
    async askFinal(
      facts: (final: boolean) => HookFacts["assistant_stream"],
      read: (answer: unknown, pluginId: string) => void,
    ): Promise<void> {
      for (const [pluginId, hook] of Object.entries(plugins)) {
        const asked = facts(told.includes(pluginId));
        if (!asked.final && asked.chunk === "") continue;
        chunks.push(`${pluginId}: ${asked.chunk}${asked.final ? " (final)" : ""}`);
        read(await hook(asked.chunk, asked), pluginId);
      }
    },
    async each(
      _: string,
      facts: () => HookFacts["assistant_stream"],
      read: (answer: unknown, pluginId: string) => void,
    ): Promise<void> {
      for (const [pluginId, hook] of Object.entries(plugins)) {
        const asked = facts();
        chunks.push(`${pluginId}: ${asked.chunk}`);
        read(await hook(asked.chunk, asked), pluginId);
      }
    },
  };
  const pump = new StreamPump({
    hooks: hooks as unknown as SessionHooks,
    facts: FACTS,
    emit: (activity) => {
      if (activity.type === "plugin_event") events.push({ pluginId: activity.pluginId, value: activity.event });
      else activities.push(activity);
    },
    signal: new AbortController().signal,
    keepFile: ({ mediaType }) => ({ type: "attachment", mediaType, source: { kind: "stored", hash: "h", bytes: 3 } }),
  });
  let stops = 0;
  pump.stop?.addEventListener("abort", () => stops++);
  return { pump, activities, events, chunks, stops: () => stops };
}

/** A hook that keeps each chunk until it is let go. */
function gated() {
  const waiting: (() => void)[] = [];
  const hook = (chunk: string) => new Promise<string>((resolve) => waiting.push(() => resolve(chunk)));
  return { hook, letGo: () => waiting.shift()?.() };
}

const settled = () => new Promise(setImmediate);
const textsOf = (activities: readonly UntimedActivity[]) =>
  activities.map((activity) => ("text" in activity ? `${activity.type} ${activity.text}` : activity.type));

describe("without stream hooks", () => {
  // turn §8.83
  it("every event passes at once, each by itself", async () => {
    const { pump, activities, chunks } = pumpWith({});
    for (const event of [reasoning("hm"), text("Hel"), text("lo"), call("c"), FINISH]) pump.push(event);
    expect(activities).toEqual([
      { type: "reasoning_delta", blockId: "r", text: "hm" },
      { type: "text_delta", blockId: "1", text: "Hel" },
      { type: "text_delta", blockId: "1", text: "lo" },
    ]);
    expect(pump.response.build().reason).toBe("stop");
    expect(pump.response.build().parts).toEqual([
      { type: "reasoning", text: "hm" },
      { type: "text", text: "Hello" },
      { type: "tool_call", callId: "c", toolName: "look", args: {} },
    ]);
    await pump.drain();
    expect(chunks).toEqual([]);
    expect(pump.aborted).toBe(false);
  });
});

describe("with stream hooks", () => {
  // §15.26
  it("text passes through every hook in order, each seeing what the one before made of it", async () => {
    const { pump, activities, chunks } = pumpWith({
      upper: (chunk) => chunk.toUpperCase(),
      silent: () => undefined,
      bang: (chunk) => ({ chunk: `${chunk}!` }),
    });
    pump.push(text("hi"));
    pump.push(FINISH);
    await pump.drain();
    expect(chunks).toEqual(["upper: hi", "silent: HI", "bang: HI"]);
    expect(activities).toEqual([{ type: "text_delta", blockId: "1", text: "HI!" }]);
    expect(pump.response.build().parts).toEqual([{ type: "text", text: "HI!" }]);
  });

  it("a hook is told which block, step and turn its chunk belongs to", async () => {
    const told: unknown[] = [];
    const { pump } = pumpWith({ p: (_, facts) => void told.push(facts) });
    pump.push(text("x", "b7"));
    await pump.drain();
    expect(told).toEqual([{ ...FACTS, blockId: "b7", chunk: "x", final: false }]);
  });

  it("chunks that come while one is away join: one call for the first, one for all the others", async () => {
    const gate = gated();
    const { pump, activities, chunks } = pumpWith({ slow: gate.hook });
    for (const word of ["a", "b", "c", "d"]) pump.push(text(word));
    gate.letGo();
    await settled();
    gate.letGo();
    await pump.drain();
    expect(chunks).toEqual(["slow: a", "slow: bcd"]);
    expect(textsOf(activities)).toEqual(["text_delta a", "text_delta bcd"]);
  });

  it("a hook that keeps up sees every chunk", async () => {
    const { pump, chunks } = pumpWith({ quick: () => undefined });
    for (const word of ["a", "b", "c"]) {
      pump.push(text(word));
      await pump.drain();
    }
    expect(chunks).toEqual(["quick: a", "quick: b", "quick: c"]);
  });

  // turn §8.83
  it("chunks of different blocks never join", async () => {
    const gate = gated();
    const { pump, chunks } = pumpWith({ slow: gate.hook });
    for (const [word, block] of [
      ["a", "1"],
      ["b", "1"],
      ["c", "2"],
      ["d", "2"],
      ["e", "1"],
    ] as const)
      pump.push(text(word, block));
    for (let i = 0; i < 4; i++) {
      gate.letGo();
      await settled();
    }
    await pump.drain();
    expect(chunks).toEqual(["slow: a", "slow: b", "slow: cd", "slow: e"]);
  });

  it("reasoning and tool calls wait behind the text before them", async () => {
    const gate = gated();
    const { pump, activities, chunks } = pumpWith({ slow: gate.hook });
    for (const event of [text("a"), reasoning("hm"), text("b"), call("c"), text("d"), FINISH]) pump.push(event);
    await settled();
    expect(activities).toEqual([]);
    expect(pump.response.build().reason).toBe("unknown");
    for (let i = 0; i < 3; i++) {
      gate.letGo();
      await settled();
    }
    await pump.drain();
    expect(chunks).toEqual(["slow: a", "slow: b", "slow: d"]);
    expect(textsOf(activities)).toEqual(["text_delta a", "reasoning_delta hm", "text_delta b", "text_delta d"]);
    expect(pump.response.build().reason).toBe("stop");
    expect(pump.response.build().parts.map(({ type }) => type)).toEqual(["text", "reasoning", "tool_call"]);
  });

  it("a stream that begins with reasoning or a tool call loses nothing behind it", async () => {
    for (const first of [reasoning("hm"), call("c"), text("")]) {
      const { pump, chunks } = pumpWith({ p: () => undefined });
      pump.push(first);
      pump.push(text("after"));
      pump.push(FINISH);
      await pump.drain();
      expect(chunks).toEqual(["p: after"]);
      expect(pump.response.build().reason).toBe("stop");
    }
  });

  it("a chunk may be swallowed, and the block goes on", async () => {
    const { pump, activities } = pumpWith({ censor: (chunk) => (chunk === "secret" ? "" : chunk) });
    for (const word of ["secret", "fine"]) {
      pump.push(text(word));
      await pump.drain();
    }
    expect(textsOf(activities)).toEqual(["text_delta fine"]);
  });

  it("reasoning a hook adds comes before its chunk, in a block of its own", async () => {
    const { pump, activities } = pumpWith({ p: (chunk) => ({ chunk, reasoning: ["why", " so"] }) });
    pump.push(text("x"));
    await pump.drain();
    expect(activities).toEqual([
      { type: "reasoning_delta", blockId: "1:p", text: "why" },
      { type: "reasoning_delta", blockId: "1:p", text: " so" },
      { type: "text_delta", blockId: "1", text: "x" },
    ]);
    expect(pump.response.build().parts).toEqual([
      { type: "reasoning", text: "why so" },
      { type: "text", text: "x" },
    ]);
  });

  it("events of a hook are told with the name of its plugin", async () => {
    const { pump, events } = pumpWith({ p: () => ({ events: [{ name: "seen", payload: 1 }] }) });
    pump.push(text("x"));
    await pump.drain();
    expect(events).toEqual([{ pluginId: "p", value: { name: "seen", payload: 1 } }]);
  });
});

describe("text that was not streamed", () => {
  it("is told as one delta and recorded as it is when nobody projects it", async () => {
    const { pump, activities } = pumpWith({});
    for (const event of [whole("Hello"), FINISH]) pump.push(event);
    await pump.drain();
    expect(activities).toEqual([{ type: "text_delta", blockId: "1", text: "Hello" }]);
    expect(pump.response.build().parts).toEqual([{ type: "text", text: "Hello" }]);
  });

  it("is told and recorded as the prose projector makes it, block by block", async () => {
    const seen: string[] = [];
    const { pump, activities } = pumpWith({}, (prose) => {
      seen.push(prose);
      return prose.toUpperCase();
    });
    for (const event of [whole("one", "a"), whole("two", "b"), FINISH]) pump.push(event);
    await pump.drain();
    expect(seen).toEqual(["one", "two"]);
    expect(activities).toEqual([
      { type: "text_delta", blockId: "a", text: "ONE" },
      { type: "text_delta", blockId: "b", text: "TWO" },
    ]);
    expect(pump.response.build().parts).toEqual([
      { type: "text", text: "ONE" },
      { type: "text", text: "TWO" },
    ]);
  });

  it("never passes a stream hook, and streamed text never the projector", async () => {
    const projected: string[] = [];
    const { pump, activities, chunks } = pumpWith({ bang: (chunk) => `${chunk}!` }, (prose) => {
      projected.push(prose);
      return `${prose}?`;
    });
    for (const event of [text("streamed", "a"), whole("whole", "b"), FINISH]) pump.push(event);
    await pump.drain();
    expect(chunks).toEqual(["bang: streamed"]);
    expect(projected).toEqual(["whole"]);
    expect(textsOf(activities)).toEqual(["text_delta streamed!", "text_delta whole?"]);
  });

  it("waits behind a chunk that is away, and what comes after it waits too", async () => {
    const gate = gated();
    const { pump, activities } = pumpWith({ slow: gate.hook }, (prose) => `<${prose}>`);
    for (const event of [text("a"), whole("b"), reasoning("hm"), text("c"), FINISH]) pump.push(event);
    await settled();
    expect(activities).toEqual([]);
    gate.letGo();
    await settled();
    expect(textsOf(activities)).toEqual(["text_delta a", "text_delta <b>", "reasoning_delta hm"]);
    gate.letGo();
    await pump.drain();
    expect(textsOf(activities)).toEqual(["text_delta a", "text_delta <b>", "reasoning_delta hm", "text_delta c"]);
  });

  it("is neither projected when it is empty nor told when it became empty", async () => {
    const seen: string[] = [];
    const { pump, activities } = pumpWith({}, (prose) => {
      seen.push(prose);
      return "";
    });
    for (const event of [whole("", "a"), whole("secret", "b"), FINISH]) pump.push(event);
    await pump.drain();
    expect(seen).toEqual(["secret"]);
    expect(activities).toEqual([]);
    expect(pump.response.build().parts).toEqual([]);
  });
});

describe("a prose projector that fails", () => {
  const throwing = () => {
    throw new Error("boom");
  };
  // Wrong on purpose: what a plugin written in JavaScript may do.
  const wrong = (() => Promise.resolve(7)) as unknown as (text: string) => string;

  describe.each<[string, Readonly<Record<string, StreamHook>>]>([
    ["without stream hooks", {}],
    ["with stream hooks", { p: () => undefined }],
  ])("%s", (_, plugins) => {
    it.each([
      ["throws", throwing, "hook_failed", "boom"],
      ["answers with a number", wrong, "invalid_hook_answer", "A prose projector returns a string or nothing."],
    ])("because it %s fails the call with plugin_prose_projector", async (_why, project, code, message) => {
      const { pump, activities, stops } = pumpWith(plugins, project);
      for (const event of [reasoning("hm"), whole("a"), reasoning("never"), FINISH]) pump.push(event);
      await expect(pump.drain()).rejects.toMatchObject({
        code: "plugin_prose_projector",
        message: `The prose projector failed: ${message}`,
        cause: expect.objectContaining({ code }),
      });
      expect(stops()).toBe(1);
      expect(textsOf(activities)).toEqual(["reasoning_delta hm"]);
      expect(pump.response.build().reason).toBe("unknown");
      expect(pump.cost).toEqual(USAGE);
      expect(pump.aborted).toBe(false);
    });
  });
});

describe("abortStream", () => {
  // §15.26
  it("keeps the chunk it came with, drops everything behind it and stops the model call once", async () => {
    const gate = gated();
    const { pump, activities, chunks, stops } = pumpWith({
      slow: gate.hook,
      stop: (chunk) => ({ chunk: `${chunk}.`, abortStream: chunk === "b" }),
    });
    for (const event of [text("a"), text("b"), reasoning("hm"), text("c"), call("c")]) pump.push(event);
    gate.letGo();
    await settled();
    expect(pump.aborted).toBe(false);
    expect(pump.cost).toBeUndefined();
    pump.push(FINISH);
    gate.letGo();
    await pump.drain();
    expect(pump.aborted).toBe(true);
    expect(stops()).toBe(1);
    pump.push(text("late"));
    await pump.drain();
    expect(chunks).toEqual(["slow: a", "stop: a", "slow: b", "stop: b"]);
    expect(textsOf(activities)).toEqual(["text_delta a.", "text_delta b."]);
    expect(pump.response.build("stop")).toMatchObject({ parts: [{ type: "text", text: "a.b." }], reason: "stop" });
    // What it cost is known all the same.
    expect(pump.cost).toEqual(USAGE);
  });
});

describe("a stream hook that fails", () => {
  // §15.27
  it.each<[string, StreamHook, string, string]>([
    [
      "throws",
      () => {
        throw new Error("boom");
      },
      "hook_failed",
      "boom",
    ],
    [
      "misses its deadline",
      () => Promise.reject(new TroupeError("hook_timeout", "Too slow.")),
      "hook_timeout",
      "Too slow.",
    ],
    [
      "answers nonsense",
      () => 7,
      "invalid_hook_answer",
      "Plugin p: a stream hook returns a string, a transform or nothing.",
    ],
  ])("because it %s fails the call with plugin_assistant_stream", async (_, hook, code, message) => {
    const { pump, activities, stops } = pumpWith({ p: hook });
    for (const event of [text("a"), reasoning("hm"), text("b")]) pump.push(event);
    await expect(pump.drain()).rejects.toMatchObject({
      code: "plugin_assistant_stream",
      message: `A stream hook failed: ${message}`,
      cause: expect.objectContaining({ code }),
    });
    expect(stops()).toBe(1);
    pump.push(text("late"));
    await expect(pump.drain()).rejects.toMatchObject({ code: "plugin_assistant_stream" });
    expect(activities).toEqual([]);
    expect(pump.aborted).toBe(false);
  });
});

describe("at the end of a block", () => {
  const end = (blockId = "1"): ModelEvent => ({ type: "text_end", blockId });
  /** Holds the last character back until it knows what follows. */
  const holding = () => {
    let held = "";
    return (chunk: string, { final }: HookFacts["assistant_stream"]) => {
      const all = held + chunk;
      held = final ? "" : all.slice(-1);
      return final ? all : all.slice(0, -1);
    };
  };

  it("a hook that asks for it is told once, and what it held back is shown and kept under the block's id", async () => {
    const { pump, activities, chunks } = pumpWith({ holding: holding() }, undefined, ["holding"]);
    pump.push(text("Hel"));
    await settled();
    pump.push(text("lo"));
    await settled();
    for (const event of [end(), call("c"), FINISH]) pump.push(event);
    await pump.drain();
    expect(chunks).toEqual(["holding: Hel", "holding: lo", "holding:  (final)"]);
    expect(activities).toEqual([
      { type: "text_delta", blockId: "1", text: "He" },
      { type: "text_delta", blockId: "1", text: "ll" },
      { type: "text_delta", blockId: "1", text: "o" },
    ]);
    expect(pump.response.build().parts.slice(0, 1)).toEqual([{ type: "text", text: "Hello" }]);
  });

  it("the end that waits behind a chunk comes with it: no call more", async () => {
    const { hook, letGo } = gated();
    const { pump, activities, chunks } = pumpWith({ slow: hook }, undefined, ["slow"]);
    for (const event of [text("a"), text("b"), text("c"), end(), FINISH]) pump.push(event);
    await settled();
    letGo();
    await settled();
    letGo();
    await pump.drain();
    expect(chunks).toEqual(["slow: a", "slow: bc (final)"]);
    expect(textsOf(activities)).toEqual(["text_delta a", "text_delta bc"]);
  });

  it("what a hook lets go goes on through the hooks behind it; a hook that did not ask sees text only", async () => {
    const { pump, activities, chunks } = pumpWith(
      { before: (chunk) => chunk, holding: holding(), after: (chunk) => chunk.toUpperCase() },
      undefined,
      ["holding"],
    );
    pump.push(text("hi"));
    await settled();
    pump.push(end());
    pump.push(FINISH);
    await pump.drain();
    expect(chunks).toEqual(["before: hi", "holding: hi", "after: h", "holding:  (final)", "after: i"]);
    expect(textsOf(activities)).toEqual(["text_delta H", "text_delta I"]);
  });

  it("each block has its own, in the order they end; one without an end of its own ends with the answer", async () => {
    const { pump, activities, chunks } = pumpWith({ all: (chunk) => chunk }, undefined, ["all"]);
    for (const event of [text("a", "1"), text("b", "2"), text("c", "1"), end("1"), FINISH]) {
      pump.push(event);
      await settled();
    }
    await pump.drain();
    expect(chunks).toEqual(["all: a", "all: b", "all: c", "all:  (final)", "all:  (final)"]);
    expect(activities).toHaveLength(3);
    expect(pump.response.build().reason).toBe("stop");
  });

  it("a block that said nothing, a text that was not streamed and an aborted stream have none", async () => {
    const quiet = pumpWith({ all: (chunk) => chunk }, undefined, ["all"]);
    for (const event of [text(""), end(), whole("all of it", "2"), end("2"), FINISH]) quiet.pump.push(event);
    await quiet.pump.drain();
    expect(quiet.chunks).toEqual([]);
    const stopped = pumpWith({ stop: () => ({ abortStream: true }) }, undefined, ["stop"]);
    for (const event of [text("a"), text("b", "2"), end(), FINISH]) stopped.pump.push(event);
    await stopped.pump.drain();
    expect(stopped.chunks).toEqual(["stop: a"]);
    expect(stopped.pump.aborted).toBe(true);
  });

  it("a hook that fails then fails the model call, as with any chunk", async () => {
    const { pump } = pumpWith(
      {
        wrong: (chunk, { final }) => {
          if (final) throw new Error("no");
          return chunk;
        },
      },
      undefined,
      ["wrong"],
    );
    for (const event of [text("a"), end(), FINISH]) pump.push(event);
    await expect(pump.drain()).rejects.toMatchObject({ code: "plugin_assistant_stream" });
  });
});
