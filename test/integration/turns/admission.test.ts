import { type Session, scriptedModel, type TurnInput, type TurnResult } from "troupe";
import { describe, expect, test } from "vitest";
import {
  collect,
  fixture,
  oneToolCall,
  PATIENT,
  plugin,
  refusalOf,
  startTroupe,
  tempFolder,
  until,
} from "../../support/runtime.js";

const reads = fixture("models/reads.mjs");
const named = (module: URL, id: string) => new URL(`${module}?id=${id}`);
const bytes = (text: string) => new TextEncoder().encode(text);
const text = (value: string) => ({ type: "text", text: value }) as const;
const inline = (content: string, mediaType = "text/plain") =>
  ({ type: "attachment", source: { kind: "inline", mediaType, bytes: bytes(content) } }) as const;
const url = (address: string) =>
  ({ type: "attachment", source: { kind: "url", mediaType: "image/png", url: address } }) as const;
const note = { kind: "message", message: { role: "user", text: "By the way." } } as const;
const toldIn = ({ text: told }: TurnResult) => JSON.parse(told);
const told = async (session: Session, input: TurnInput, options = {}) => toldIn(await session.turn(input, options));

describe("an attachment", () => {
  test("of bytes is stored under its content, once, and read by the model in this turn and the next", async () => {
    const path = await tempFolder();
    const troupe = await startTroupe({ model: reads, store: { path } });
    const session = await troupe.session("s");
    const input = {
      items: [text("Look: "), inline("picture", "image/png"), text("and "), inline("picture"), text("!")],
    };
    const expected = [
      "Look: ",
      { mediaType: "image/png", content: "picture" },
      "and ",
      { mediaType: "text/plain", content: "picture" },
      "!",
    ];
    expect(await told(session, input)).toMatchObject({ conversation: [expected], attachments: 1 });
    expect(await told(session, "Again")).toMatchObject({ conversation: [expected, ["Again"]], attachments: 1 });
    const [message] = await session.messages({ to: 1 });
    // Never the bytes themselves, and the same content has the same name.
    expect(message?.parts.map((part) => (part.type === "attachment" ? part.source : part.type))).toEqual([
      "text",
      { kind: "stored", hash: expect.any(String), bytes: 7 },
      "text",
      { kind: "stored", hash: expect.any(String), bytes: 7 },
      "text",
    ]);
    await troupe.close();
    // It outlives the process.
    const again = await (await startTroupe({ model: reads, store: { path } })).session("s");
    expect((await told(again, "Still there?")).conversation[0]).toEqual(expected);
  });

  test("of bytes costs one record more in the turn's one write, and none in the next", async () => {
    const troupe = await startTroupe({ model: reads, sessionWorkers: 1 });
    const session = await troupe.session("s");
    await session.turn("first");
    const records = async (input: TurnInput) => {
      const before = (await troupe.stats()).store;
      await session.turn(input);
      const after = (await troupe.stats()).store;
      return [after.transactions - before.transactions, after.records - before.records];
    };
    const plain = await records("plain");
    expect(await records({ items: [inline("new")] })).toEqual([1, (plain[1] as number) + 1]);
    expect(await records("next")).toEqual(plain);
  });

  test("of a turn that is refused, or was there before, is not stored with something else", async () => {
    const troupe = await startTroupe({ sessionWorkers: 1, plugins: [{ module: plugin("late"), ...PATIENT }] });
    const session = await troupe.session("s");
    const stored = async (act: () => PromiseLike<unknown>) => {
      const before = (await troupe.stats()).store.records;
      await act();
      return (await troupe.stats()).store.records - before;
    };
    const keyed = { items: [text("once"), inline("once")] };
    await session.turn(keyed, { key: "once" });
    const plain = await stored(() => session.append({ nodes: [note] }));
    expect((await refusalOf(session.turn({ items: [text("refuse it"), inline("refused")] }))).code).toBe(
      "plugin_prepare_turn",
    );
    expect(await stored(() => session.append({ nodes: [note] }))).toBe(plain);
    await session.turn(keyed, { key: "once" });
    expect(await stored(() => session.append({ nodes: [note] }))).toBe(plain);
    const missing = {
      type: "attachment",
      source: { kind: "stored", mediaType: "text/plain", hash: "A".repeat(43), bytes: 1 },
    } as const;
    // Recorded as invalid: the head and its message, and what the plugin notes of it.
    expect(await stored(() => session.turn({ items: [inline("half"), missing] }))).toBe(
      await stored(() => session.turn({ items: [missing] })),
    );
  });

  test("of the session, or of what it was forked from, is named by its hash; one of another session is not", async () => {
    const troupe = await startTroupe({ model: reads });
    const one = await troupe.session("one");
    await one.turn({ items: [inline("shared")] });
    const [message] = await one.messages({ to: 1 });
    const part = message?.parts[0];
    const hash = part?.type === "attachment" && part.source.kind === "stored" ? part.source.hash : "";
    const source = { kind: "stored", mediaType: "text/plain", hash, bytes: 0, name: "a.txt" } as const;
    const items = [{ type: "attachment", source }] as const;
    const named = [{ mediaType: "text/plain", name: "a.txt", content: "shared" }];
    expect((await told(one, { items })).conversation.at(-1)).toEqual(named);
    const child = await one.fork({ id: "one/child" });
    expect((await told(child, { items })).conversation.at(-1)).toEqual(named);
    // To another session it is nothing, as a hash that nobody has stored is.
    const { outcome } = await (await troupe.session("other")).turn({ items });
    expect(outcome).toMatchObject({ reason: "invalid_input", message: expect.stringContaining("is not there") });
  });

  // turn §8.26
  test("from an address passes by policy only", async () => {
    const troupe = await startTroupe({ model: reads, attachments: { urls: ["images.example"] } });
    const session = await troupe.session("s");
    expect(await told(session, { items: [url("https://images.example/a.png")] })).toMatchObject({
      conversation: [[{ mediaType: "image/png", content: "https://images.example/a.png" }]],
    });
    const { outcome } = await session.turn({ items: [url("https://elsewhere.example/a.png")] });
    expect(outcome).toMatchObject({ reason: "invalid_input", message: expect.stringContaining("elsewhere.example") });
  });

  test("goes with a fork's history", async () => {
    const troupe = await startTroupe({ model: reads });
    const parent = await troupe.session("p");
    await parent.turn({ items: [inline("inherited")] });
    const child = await parent.fork();
    expect((await told(child, "What is there?")).conversation[0]).toEqual([
      { mediaType: "text/plain", content: "inherited" },
    ]);
  });

  test("can be said into a running turn and queued for the next", async () => {
    let open: (value: string) => void = () => {};
    const gate = new Promise<string>((resolve) => {
      open = resolve;
    });
    const calls = { model: reads, models: { calls: oneToolCall("wait") } };
    const wait = { description: "d", inputSchema: { type: "object" }, execute: () => gate } as const;
    const troupe = await startTroupe({ ...calls, tools: { wait } });
    const session = await troupe.session("s");
    const turn = session.turn("go", { model: "calls" });
    for await (const { type } of turn) if (type === "tool_call_started") break;
    await session.steer({ items: [text("See "), inline("steered")] });
    await session.enqueue({ items: [inline("queued")] });
    await session.enqueue("and a text");
    open("done");
    await turn;
    await until("the queued turn", async () => (await session.info()).turns === 2);
    expect((await told(session, "What was said?")).conversation).toEqual([
      ["go"],
      ["See ", { mediaType: "text/plain", content: "steered" }],
      [{ mediaType: "text/plain", content: "queued" }, "and a text"],
      ["What was said?"],
    ]);
  });
});

describe("an input that is of no use", () => {
  // turn §8.25
  test.each<[string, TurnInput, string]>([
    ["an address nobody allowed", { items: [text("hi"), url("https://a.example/x")] }, "a.example"],
    ["an attachment that is too big", { items: [inline("12345")] }, "4 are allowed"],
    ["a media type that is none", { items: [inline("1", "nonsense")] }, "nonsense"],
    [
      "an attachment that is not there",
      {
        items: [{ type: "attachment", source: { kind: "stored", mediaType: "a/b", hash: "x".repeat(43), bytes: 1 } }],
      },
      "is not there",
    ],
  ])("is a recorded turn: %s", async (_, input, why) => {
    const troupe = await startTroupe({ model: reads, attachments: { maxBytes: 4 } });
    const session = await troupe.session("s");
    const turn = session.turn(input);
    const activities = (await collect(turn)).map(({ type }) => type);
    const result = await turn;
    expect(result).toMatchObject({
      turnIndex: 1,
      revision: 1,
      modelCalls: 0,
      outcome: { type: "stopped", reason: "invalid_input", code: "invalid_turn_input" },
      issues: [{ kind: "input", code: "invalid_turn_input", message: expect.stringContaining(why) }],
    });
    expect(activities).toEqual(["turn_started", "issue", "turn_finished"]);
    expect(await session.info()).toMatchObject({ turns: 1, revision: 1 });
    expect(await session.messages()).toEqual([]);
    expect((await session.turn("Hello")).outcome.type).toBe("finished");
  });

  test.each([
    ["nothing", undefined],
    ["a number", 7],
    ["no items", {}],
    ["an item of no kind", { items: [{ type: "picture" }] }],
    ["an attachment without bytes", { items: [{ type: "attachment", source: { kind: "inline", mediaType: "a/b" } }] }],
  ])("is refused at the call when only a program can have made it: %s", async (_, input) => {
    const troupe = await startTroupe();
    const session = await troupe.session("s");
    expect(() => session.turn(input as never)).toThrowError(expect.objectContaining({ code: "invalid_turn_input" }));
    expect(await session.info()).toMatchObject({ turns: 0 });
  });

  test.each([
    ["an option nobody knows", { modle: "x" }, 'a turn has no option "modle". Did you mean "model"?'],
    ["a key that is empty", { key: "" }, "key is a string"],
    ["steps that are none", { maxSteps: 0 }, "maxSteps is a whole number"],
    ["plugin inputs that are none", { pluginInputs: 3 }, "pluginInputs is an object"],
  ])("options too: %s", async (_, options, why) => {
    const session = await (await startTroupe()).session("s");
    expect(() => session.turn("x", options as never)).toThrowError(
      expect.objectContaining({ code: "invalid_turn_options", message: expect.stringContaining(why) }),
    );
  });
});

describe("a turn's key", () => {
  test("names it: asked for again it is answered, not run, also by another process", async () => {
    const path = await tempFolder();
    const troupe = await startTroupe({ store: { path } });
    const session = await troupe.session("s");
    const first = await session.turn("Hello", { key: "k" });
    expect(await session.turn("Hello", { key: "k" })).toEqual(first);
    expect(await session.info()).toMatchObject({ turns: 1 });
    await troupe.close();
    const again = await (await startTroupe({ store: { path } })).session("s");
    expect(await again.turn("Hello", { key: "k" })).toEqual(first);
    expect(await again.turn("Hello", { key: "other" })).toMatchObject({ turnIndex: 2 });
    expect(await again.info()).toMatchObject({ turns: 2 });
  });

  test("asked for twice at once, it runs once", async () => {
    const session = await (await startTroupe()).session("s");
    const [one, two] = await Promise.all([session.turn("Hello", { key: "k" }), session.turn("Hello", { key: "k" })]);
    expect(two).toEqual(one);
    expect(await session.info()).toMatchObject({ turns: 1 });
  });

  test("with another input is a conflict that says which turn has it", async () => {
    const session = await (await startTroupe()).session("s");
    await session.turn({ items: [text("Look"), inline("a")] }, { key: "k" });
    const same = { items: [text("Lo"), text("ok"), inline("a")] };
    expect((await session.turn(same, { key: "k" })).turnIndex).toBe(1);
    expect(await refusalOf(session.turn({ items: [text("Look"), inline("b")] }, { key: "k" }))).toMatchObject({
      code: "turn_key_conflict",
      details: { key: "k", turnId: "t1" },
    });
    expect(await session.info()).toMatchObject({ turns: 1 });
  });

  test("is remembered for the last 32 keyed turns, in place of the oldest, and not by a fork", async () => {
    const path = await tempFolder();
    const troupe = await startTroupe({ store: { path } });
    const session = await troupe.session("s");
    for (let n = 0; n < 33; n++) await session.turn("Hello", { key: `k${n}` });
    expect((await session.turn("Hello", { key: "k1" })).turnIndex).toBe(2);
    expect((await session.turn("Hello", { key: "k0" })).turnIndex).toBe(34);
    await session.close();
    const again = await troupe.session("s");
    expect((await again.turn("Hello", { key: "k2" })).turnIndex).toBe(3);
    expect((await again.turn("Hello", { key: "k1" })).turnIndex).toBe(35);
    expect((await again.turn("Hello", { key: "k2" })).turnIndex).toBe(36);
    const child = await again.fork();
    expect((await child.turn("Hello", { key: "k35" })).turnIndex).toBe(37);
    expect((await child.turn("Hello", { key: "k2" })).turnIndex).toBe(38);
  });
});

describe("a turn may have", () => {
  // turn §8.46
  test("another model, for itself only", async () => {
    const models = { fast: named(reads, "fast"), slow: named(reads, "slow") };
    const session = await (await startTroupe({ model: reads, models })).session("s");
    expect((await told(session, "x", { model: "fast" })).model).toBe("fast");
    expect((await told(session, "x")).model).toBe("reads");
    await session.configure({ model: "slow" });
    expect((await told(session, "x")).model).toBe("slow");
    expect((await told(session, "x", { model: "fast" })).model).toBe("fast");
    expect((await session.view()).config.model).toBe("slow");
  });

  test("a model nobody knows: it is refused, and nothing is lost", async () => {
    const session = await (await startTroupe({ models: { fast: reads } })).session("s");
    expect(await refusalOf(session.turn("x", { model: "fats" }))).toMatchObject({
      code: "model_unknown",
      message: "There is no model fats. Did you mean fast?",
    });
    expect((await session.turn("x")).turnIndex).toBe(1);
  });

  // turn §8.96
  test("its own prompt, over the session's, over the host's", async () => {
    const slot = (content: string, reset = false) => ({ slots: { guidance: { reset, contributions: [{ content }] } } });
    const troupe = await startTroupe({ model: reads, instructions: "Be kind.", prompt: slot("Host.") });
    const session = await troupe.session("s");
    await session.configure({ prompt: slot("Session.") });
    const prompt = async (options = {}) => (await told(session, "x", options)).system;
    expect(await prompt()).toBe("Be kind.\n\n## Guidance\n\nHost.\n\nSession.");
    expect(await prompt({ prompt: slot("Turn.") })).toBe("Be kind.\n\n## Guidance\n\nHost.\n\nSession.\n\nTurn.");
    expect(await prompt({ prompt: slot("Turn.", true) })).toBe("Be kind.\n\n## Guidance\n\nTurn.");
    expect(await prompt({ prompt: { template: [{ entries: [{ text: "Only this." }] }] } })).toBe("Only this.");
    expect(await prompt()).toBe("Be kind.\n\n## Guidance\n\nHost.\n\nSession.");
    expect(() => session.turn("x", { prompt: { slots: { wall: {} } } as never })).toThrowError(
      expect.objectContaining({ code: "invalid_prompt" }),
    );
  });

  test("its own limit of steps, or none", async () => {
    const again = { toolCalls: [{ tool: "noop", args: {} }] };
    const model = scriptedModel({ turns: [[...Array(40).fill(again), { text: "done" }]] });
    const noop = { description: "d", inputSchema: { type: "object" }, execute: () => "ok" } as const;
    const session = await (await startTroupe({ model, tools: { noop } })).session("s");
    expect(await session.turn("x", { maxSteps: 2 })).toMatchObject({ modelCalls: 2, outcome: { reason: "max_turns" } });
    expect(await session.turn("x")).toMatchObject({ modelCalls: 32, outcome: { reason: "max_turns" } });
    expect(await session.turn("x", { maxSteps: null })).toMatchObject({ modelCalls: 41, outcome: { text: "done" } });
  });

  test.each(["worker", "inline"] as const)("inputs for single plugins (%s), each told its own", async (tier) => {
    const entry = (id: string) => ({ module: named(plugin("live-input"), id), tier, ...PATIENT });
    const troupe = await startTroupe({ model: reads, plugins: [entry("test.one"), entry("test.two")] });
    const session = await troupe.session("s");
    const turn = session.turn("x", { pluginInputs: { "test.two": { page: 7 } } });
    const events = (await collect(turn)).flatMap((activity) =>
      activity.type === "plugin_event" ? [[activity.pluginId, activity.event.payload]] : [],
    );
    expect(events).toEqual([
      ["test.one", null],
      ["test.two", { page: 7 }],
    ]);
    const context = '<context from="runtime">\n## Environment\n\nTold: {"page":7}\n</context>';
    expect(toldIn(await turn)).toMatchObject({ system: "", conversation: [["x"], [context]] });
    expect(await told(session, "y")).toMatchObject({ system: "", conversation: [["x"], ["y"]] });
    expect(await refusalOf(session.turn("x", { pluginInputs: { nobody: 1 } }))).toMatchObject({
      code: "plugin_unknown",
    });
  });
});

describe("a turn that gets nowhere", () => {
  const failing = {
    description: "d",
    inputSchema: { type: "object" },
    execute: () => {
      throw new Error("no");
    },
  } as const;
  const tries = (times: number) => [
    ...Array(times).fill({ toolCalls: [{ tool: "fails", args: {} }] }),
    { text: "done" },
  ];

  // turn §8.13
  test.each([
    ["12 steps in a row in which nothing worked, by default", {}, 12],
    ["as many as the host says", { noProgressLimit: 3 }, 3],
  ])("is stopped after %s", async (_, options, steps) => {
    const model = scriptedModel({ turns: [tries(20)] });
    const session = await (await startTroupe({ model, tools: { fails: failing }, ...options })).session("s");
    expect(await session.turn("x")).toMatchObject({
      modelCalls: steps,
      outcome: { type: "stopped", reason: "max_turns", code: "no_progress" },
    });
  });

  test("goes on when the host says so, and counts anew when something works", async () => {
    const works = { description: "d", inputSchema: { type: "object" }, execute: () => "ok" } as const;
    const script = [...tries(2).slice(0, 2), { toolCalls: [{ tool: "works", args: {} }] }, ...tries(2)];
    const tools = { fails: failing, works };
    const model = scriptedModel({ turns: [script as never] });
    const counted = await (await startTroupe({ model, tools, noProgressLimit: 3 })).session("s");
    expect((await counted.turn("x")).outcome).toMatchObject({ type: "finished", text: "done" });
    const endless = await startTroupe({ model: scriptedModel({ turns: [tries(20)] }), tools, noProgressLimit: null });
    expect((await (await endless.session("s")).turn("x")).outcome).toMatchObject({ type: "finished" });
  });
});
