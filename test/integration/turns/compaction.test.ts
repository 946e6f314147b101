import { spawn } from "node:child_process";
import { once } from "node:events";
import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { type Session, scriptedModel, type TroupeOptions } from "troupe";
import { describe, expect, onTestFinished, test } from "vitest";
import { type PricedRequest, sharedBlocks, startPrefixProvider } from "../../../bench/measuring/prefix-provider.js";
import { listening } from "../../support/listening.js";
import {
  collect,
  EMPTY_OBJECT,
  fixture,
  NODE_ARGS,
  plugin,
  refusalOf,
  startTroupe,
  tempFolder,
  until,
} from "../../support/runtime.js";

// What is decided about a compaction, and every seam of one, is in test/session/turn/compaction.test.ts; here it passes threads.

const LONG = "word ".repeat(10);

/** Counts what it reads by its length. */
async function reading(): Promise<URL> {
  return new URL(`${fixture("models/compacts.mjs")}?file=${encodeURIComponent(join(await tempFolder(), "calls"))}`);
}

async function talked(session: Session, turns = 14): Promise<Session> {
  for (let n = 1; n <= turns; n++) await session.turn(`Question ${n}. ${LONG}`);
  return session;
}

const texts = async (session: Session) =>
  (await session.messages()).map(({ parts }) =>
    parts
      .map((part) => ("text" in part ? part.text : ""))
      .join("")
      .slice(0, 13),
  );

describe("a conversation that is summed up by itself", () => {
  test("goes on in a frame that begins with its first turn, the summary and its last turns; it is told, counted and kept", async () => {
    const { events, onEvent } = listening();
    const troupe = await startTroupe({
      model: await reading(),
      compaction: { keepTurns: 1 },
      onEvent,
      store: { path: await tempFolder() },
    });
    const session = await talked(await troupe.session("s"));
    await session.configure({ maxContextTokens: 500 });
    const told = await collect(session.turn("And now?"));
    const compacted = told.filter(({ type }) => type === "context_compacted");
    expect(compacted).toMatchObject([
      { reason: "threshold", messagesBefore: 28, messages: 5, pluginId: "troupe.compaction" },
    ]);
    expect(told.filter(({ type }) => type === "usage")).toMatchObject([{ source: "compaction" }]);
    expect(await texts(session)).toEqual([
      "Question 1. w",
      "Said: word wo",
      "[The conversa",
      "Question 14. ",
      "Said: word wo",
      "And now?",
      "Said: word wo",
    ]);
    const view = await session.view();
    expect(view.frames).toMatchObject([{ frameId: "main", reason: "compaction" }]);
    expect(view.ledger.map(({ source }) => source).sort()).toEqual(["compaction", "turn"]);
    expect(await session.messages({ frameId: "main" })).toHaveLength(28);
    await until("it is told as an event", () => events.some(({ type }) => type === "context_compacted"));
    // The next turn has room again.
    const next = await collect(session.turn("And then?"));
    expect(next.some(({ type }) => type === "context_compacted")).toBe(false);
  });

  test("is asked of the plugins' compactors first", async () => {
    const troupe = await startTroupe({
      model: await reading(),
      compaction: {},
      plugins: [{ module: plugin("keeps-beginning"), options: { keep: 2 } }],
    });
    const session = await talked(await troupe.session("s"));
    await session.configure({ maxContextTokens: 500 });
    const told = await collect(session.turn("And now?"));
    expect(told.find(({ type }) => type === "context_compacted")).toMatchObject({
      pluginId: "test.keeps-beginning",
      messages: 3,
    });
    expect((await session.view()).ledger.map(({ source }) => source)).toEqual(["turn"]);
  });

  test("is a setting of a session and of an agent too, and `session.compact()` sums up with it", async () => {
    const troupe = await startTroupe({
      model: await reading(),
      agents: { brief: { limits: { maxContextTokens: 500, compaction: { keepTurns: 1 } } } },
    });
    const plain = await talked(await troupe.session("plain"));
    expect(await plain.compact()).toBe(false);
    const { changed } = await plain.configure({ compaction: { keepTurns: 2 } });
    expect([changed, await plain.compact(), await plain.compact({ instructions: "Briefly." })]).toEqual([
      true,
      true,
      true,
    ]);
    expect((await plain.view()).frames).toHaveLength(2);
    const brief = await talked(await troupe.session("brief", { agent: "brief" }), 20);
    expect((await brief.view()).frames.length).toBeGreaterThan(0);
    expect((await refusalOf(plain.configure({ compaction: { at: 2 } }))).code).toBe("invalid_compaction");
    await expect(startTroupe({ compaction: { keep: 1 } as never })).rejects.toMatchObject({
      code: "invalid_compaction",
    });
  });

  test("goes on behind a provider's refusal within the same call of the model", async () => {
    const overflow = { code: "context_overflow", attempts: 1 };
    const turns = [...Array.from({ length: 6 }, () => [{ text: LONG }]), [{ text: "Shorter.", fail: overflow }]];
    const model = scriptedModel({ turns, direct: [{ text: "It was about words." }] });
    const troupe = await startTroupe({ model, compaction: { keepTurns: 1 } });
    const session = await talked(await troupe.session("s"), 6);
    const turn = session.turn("And now?");
    const types = (await collect(turn)).map(({ type }) => type);
    expect(await turn).toMatchObject({ text: LONG, modelCalls: 1, issues: [] });
    expect(types.filter((type) => /^(model|context)_/.test(type))).toEqual([
      "model_call_started",
      "context_compacted",
      "model_retry",
      "model_call_finished",
    ]);
  });

  test("is read from the provider's cache when it is summed up, and begins as before afterwards", async () => {
    const served = await startPrefixProvider({ calls: 1, tool: { name: "note", input: {} }, text: LONG });
    onTestFinished(() => served[Symbol.asyncDispose]());
    const troupe = await startTroupe({
      model: new URL(`${fixture("models/anthropic.mjs")}?base=${encodeURIComponent(served.url)}`),
      instructions: "Answer as the handbook says. ".repeat(200),
      tools: { note: { description: "Notes", inputSchema: EMPTY_OBJECT, execute: () => LONG } },
      compaction: { keepTurns: 1 },
    });
    const session = await talked(await troupe.session("s"), 12);
    await session.configure({ maxContextTokens: 3_000 });
    await session.turn("And now?");
    const isSummary = ({ blocks }: PricedRequest) => blocks.at(-1)?.includes("Sum up this conversation") === true;
    const at = served.requests.findIndex(isSummary);
    const [before, summary, after] = served.requests.slice(at - 1, at + 2) as [
      PricedRequest,
      PricedRequest,
      PricedRequest,
    ];
    const { cache_read_input_tokens: read, cache_creation_input_tokens: written, input_tokens: rest } = summary.usage;
    expect(read / (read + written + rest)).toBeGreaterThan(0.8);
    // Everything but the last turn and what asks for the summary was asked before, to the byte.
    expect(sharedBlocks(before, summary)).toBe(summary.blocks.length - 1);
    const first = before.blocks.findIndex((block) => block.includes("Question 2."));
    expect(sharedBlocks(before, after)).toBe(first);
    expect((await session.view()).frames.length).toBeGreaterThan(0);
  });
});

test.each([
  [
    "while it is summed up",
    "direct compaction",
    ["direct compaction", "direct compaction", "model t11 0", "model t11 1"],
  ],
  ["at the call behind that", "model t11 0", ["direct compaction", "model t11 0", "model t11 0", "model t11 1"]],
  ["at a later call of the turn", "model t11 1", ["direct compaction", "model t11 0", "model t11 1", "model t11 1"]],
])(
  "a process that is killed %s: the next one goes on in one new frame and pays for one summary",
  async (_, kill, calls) => {
    const folder = await tempFolder();
    const file = join(folder, "calls");
    const model = `${fixture("models/compacts.mjs").href}?file=${encodeURIComponent(file)}&kill=${encodeURIComponent(kill)}`;
    const options: TroupeOptions = {
      store: { path: join(folder, "store") },
      sessionWorkers: 1,
      maxContextTokens: 506,
      compaction: { keepTurns: 1 },
    };
    const program = fixture("programs/compacts-until-killed.mjs").pathname;
    const child = spawn(process.execPath, [...NODE_ARGS, program, JSON.stringify({ options, model })], {
      stdio: ["ignore", "ignore", "inherit"],
    });
    const [, signal] = await once(child, "exit");
    expect(signal).toBe("SIGKILL");
    const tools = { note: { description: "Notes.", inputSchema: EMPTY_OBJECT, execute: () => "noted" } };
    const troupe = await startTroupe({ ...options, model: new URL(model), tools });
    const session = await troupe.session("s");
    // Before the summary was answered nothing of the turn was written down yet: whoever asked for it asks again.
    if (kill === "direct compaction") await session.turn("note");
    await until("the turn is stored", async () => (await session.view()).turnIndex === 11);
    const { frames, ledger } = await session.view();
    const cost = ledger.filter(({ source }) => source === "compaction");
    expect([frames.length, cost.map(({ usage }) => usage.outputTokens)]).toEqual([1, [5]]);
    const lines = (await readFile(file, "utf8"))
      .split("\n")
      .filter((line) => line !== "" && !/^model t([1-9]|10) /.test(line));
    expect(lines).toEqual(calls);
    expect(await texts(session)).toHaveLength(9);
  },
);
