import { type Session, scriptedModel, type TroupeOptions, type TurnIssue } from "troupe";
import { describe, expect, onTestFinished, test } from "vitest";
import {
  type PrefixProvider,
  type PrefixScript,
  type PricedRequest,
  sharedBlocks,
  startPrefixProvider,
} from "../../../bench/measuring/prefix-provider.js";
import { gates } from "../../support/journaled.js";
import {
  EMPTY_OBJECT,
  fixture,
  PATIENT,
  plugin,
  RESIDENT,
  startTroupe,
  tempFolder,
  until,
} from "../../support/runtime.js";

// What is sent to a provider that caches prefixes, through Anthropic's own package: every request is compared to the byte.

const INSTRUCTIONS = "Answer as the handbook says. ".repeat(200);
const NOTE = { description: "Takes a note", inputSchema: EMPTY_OBJECT, execute: () => "noted" } as const;
const SCRIPT: PrefixScript = { calls: 1, tool: { name: "note", input: {} }, text: "Done." };
const clock = (options: object = {}) => ({ module: plugin("changes-prompt"), options, ...PATIENT });

async function provider(script: Partial<PrefixScript> = {}): Promise<PrefixProvider> {
  const started = await startPrefixProvider({ ...SCRIPT, ...script });
  onTestFinished(() => started[Symbol.asyncDispose]());
  return started;
}

const anthropic = ({ url }: PrefixProvider) =>
  new URL(`${fixture("models/anthropic.mjs")}?base=${encodeURIComponent(url)}`);

const start = (served: PrefixProvider, options: TroupeOptions = {}) =>
  startTroupe({ model: anthropic(served), instructions: INSTRUCTIONS, tools: { note: NOTE }, ...RESIDENT, ...options });

const request = ({ requests }: PrefixProvider, at: number): PricedRequest => {
  const found = requests.at(at);
  if (found === undefined) throw new Error(`There is no request ${at} of ${requests.length}.`);
  return found;
};

/** The first block of a request that has this text. */
const blockWith = ({ blocks }: PricedRequest, text: string): number =>
  blocks.findIndex((block) => block.includes(text));

/** What a request says of the time, turn by turn. */
const times = ({ blocks }: PricedRequest) => blocks.filter((block) => block.includes("It is time"));

const broken = (issues: readonly TurnIssue[]) => issues.filter(({ code }) => code === "cache_prefix_broken");

async function turns(session: Session, count: number): Promise<void> {
  for (let n = 1; n <= count; n++) await session.turn(`Question ${n}`);
}

describe("what changes every turn", () => {
  test("stands behind the history, and the next request of the turn begins with the first, to the byte", async () => {
    const served = await provider({ calls: 2 });
    const session = await (await start(served, { plugins: [clock()] })).session("s");
    await session.turn("Question 1");
    const [first, second, third] = [request(served, 0), request(served, 1), request(served, 2)];
    expect(first.blocks.at(-1)).toContain("It is time 1,");
    expect(first.blocks.at(-2)).toContain("Question 1");
    expect(sharedBlocks(first, second)).toBe(first.blocks.length);
    expect(sharedBlocks(second, third)).toBe(second.blocks.length);
  });

  test("is not in the history: the next turn begins with everything before it, and has its own", async () => {
    const served = await provider();
    const session = await (await start(served, { plugins: [clock()] })).session("s");
    await turns(session, 2);
    const [last, next] = [request(served, 1), request(served, 2)];
    expect(sharedBlocks(last, next)).toBe(blockWith(last, "It is time 1,"));
    expect(next.blocks.filter((block) => block.includes("It is time"))).toEqual([
      expect.stringContaining("It is time 2,"),
    ]);
    expect((await session.messages()).some(({ id }) => id.includes("volatile"))).toBe(false);
  });

  test("is anywhere else when a plugin marks it as volatile, and in the system text when it says that it stands", async () => {
    const served = await provider({ calls: 0 });
    const session = await (await start(served, { plugins: [clock({ slot: "guidance", volatile: true })] })).session(
      "s",
    );
    await session.turn("Question 1");
    expect(request(served, 0).blocks.at(-1)).toContain("It is time");
    const stands = await (await start(served, { plugins: [clock({ volatile: false })] })).session("t");
    await stands.turn("Question 1");
    expect(request(served, 1).blocks[blockWith(request(served, 1), "It is time")]).toMatch(/^\["system"/);
  });

  test("is what it was when the turn is taken up again on another thread", async () => {
    const gate = gates();
    const served = await provider();
    const troupe = await start(served, {
      // On the session worker's thread, which it names: on the next one it would say something else.
      plugins: [{ ...clock(), tier: "inline" }],
      tools: { note: gate.tool("note") },
      store: { path: await tempFolder() },
      sessionWorkers: 1,
    });
    const session = await troupe.session("s");
    const turn = session.turn("Question 1");
    await until("the tool runs", () => gate.calls.length === 1);
    await troupe.kill({ sessionWorker: 0 });
    await until("the tool runs again", () => gate.calls.length === 2);
    gate.open("note");
    expect((await turn).text).toBe("Done. (2)");
    expect(served.requests).toHaveLength(2);
    expect(sharedBlocks(request(served, 0), request(served, 1))).toBe(request(served, 0).blocks.length);
  });
});

describe("the prefix of a session", () => {
  test("is the same to the byte after a restart, on another thread of another runtime", async () => {
    const served = await provider();
    const store = { path: await tempFolder() };
    const troupe = await start(served, { plugins: [clock()], store });
    await turns(await troupe.session("s"), 2);
    await troupe.close();
    const again = await start(served, { plugins: [clock()], store });
    await (await again.session("s")).turn("Question 3");
    const [last, next] = [request(served, 3), request(served, 4)];
    expect(sharedBlocks(last, next)).toBe(blockWith(last, "It is time"));
  });

  test("is that of its parent to the byte in the first call of a fork, on another worker", async () => {
    const served = await provider();
    const troupe = await start(served, { plugins: [clock()], sessionWorkers: 2 });
    const parent = await troupe.session("parent");
    await turns(parent, 3);
    const last = request(served, -1);
    const fork = await parent.fork();
    expect((await fork.info()).threadId).not.toBe((await parent.info()).threadId);
    const issues = [...(await fork.turn("And if not?")).issues];
    const first = request(served, 6);
    expect(sharedBlocks(last, first)).toBe(last.blocks.length);
    const { cache_read_input_tokens: read, cache_creation_input_tokens: written, input_tokens: plain } = first.usage;
    expect(read).toBeGreaterThan(10 * (written + plain));
    // Its next turn is without what was true then, as its parent's next turn is, and nobody is blamed for it.
    issues.push(...(await fork.turn("And then?")).issues, ...(await parent.turn("And if not?")).issues);
    expect(issues).toEqual([]);
    expect(times(request(served, 8))).toHaveLength(1);
    expect(times(request(served, 10))).toHaveLength(1);
    expect((await fork.messages()).some(({ id }) => id.includes("volatile"))).toBe(false);
  });

  test("is that of a fork to the byte in the first call of a fork of it, before its first turn and behind it", async () => {
    const served = await provider({ calls: 0 });
    const troupe = await start(served, { plugins: [clock()], sessionWorkers: 2 });
    const parent = await troupe.session("parent");
    await turns(parent, 2);
    const fork = await parent.fork();
    const early = await fork.fork();
    for (const session of [fork, early]) {
      await session.turn("And if not?");
      expect(sharedBlocks(request(served, 1), request(served, -1))).toBe(request(served, 1).blocks.length);
    }
    await (await fork.fork()).turn("And then?");
    expect(sharedBlocks(request(served, 2), request(served, -1))).toBe(request(served, 2).blocks.length);
  });

  test("is not that of its parent's last turn in a fork at an earlier message and in one behind a compaction", async () => {
    const served = await provider({ calls: 0 });
    const plugins = [clock(), { module: plugin("keeps-beginning"), options: { keep: 2 }, ...PATIENT }];
    const parent = await (await start(served, { plugins })).session("parent");
    await turns(parent, 3);
    const early = await parent.fork({ at: (await parent.tree())[1]?.node ?? "" });
    await early.turn("And if not?");
    expect(times(request(served, -1))).toHaveLength(1);
    await parent.compact();
    await (await parent.fork()).turn("And if not?");
    expect(times(request(served, -1))).toHaveLength(1);
  });

  test("is that of its parent when the first turn of a fork is taken up again after a crash", async () => {
    const gate = gates();
    const served = await provider();
    const troupe = await start(served, {
      plugins: [clock()],
      tools: { note: gate.tool("note") },
      store: { path: await tempFolder() },
      sessionWorkers: 1,
    });
    const parent = await troupe.session("parent");
    const asked = parent.turn("Question 1");
    await until("the tool runs", () => gate.calls.length === 1);
    gate.open("note");
    await asked;
    const fork = await parent.fork();
    const turn = fork.turn("And if not?");
    await until("the tool runs in the fork", () => gate.calls.length === 2);
    await troupe.kill({ sessionWorker: 0 });
    await until("the tool runs again", () => gate.calls.length === 3);
    gate.open("note");
    expect((await turn).outcome.type).toBe("finished");
    const [first, second] = [request(served, 2), request(served, 3)];
    expect(times(first)).toHaveLength(2);
    expect(sharedBlocks(first, second)).toBe(first.blocks.length);
  });

  test("is kept by a window until it is full, and cut at the same message by whoever goes on", async () => {
    const served = await provider({ calls: 0 });
    const store = { path: await tempFolder() };
    const options: TroupeOptions = { window: { maxMessages: 8, keepMessages: 4 }, store, sessionWorkers: 2 };
    const troupe = await start(served, options);
    const session = await troupe.session("s");
    await turns(session, 6);
    const firstAsked = served.requests.map(
      ({ blocks }) => /Question \d/.exec(blocks.find((block) => block.startsWith('["user"')) ?? "")?.[0],
    );
    // Two messages a turn: the fifth turn's history has eight, the sixth's one too many.
    expect(firstAsked).toEqual([...Array(5).fill("Question 1"), "Question 3"]);
    const fork = await session.fork();
    await fork.turn("Question 7");
    await troupe.close();
    const again = await start(served, options);
    await (await again.session("s")).turn("Question 7");
    const [last, forked, restarted] = [request(served, 5), request(served, 6), request(served, 7)];
    expect(sharedBlocks(last, forked)).toBe(last.blocks.length);
    expect(forked.blocks).toEqual(restarted.blocks);
  });

  test("goes on through a compaction as far as the compactor keeps the beginning", async () => {
    const served = await provider();
    const store = { path: await tempFolder() };
    // In the middle of the second turn: no result is kept without its call, so the first turn is.
    const plugins = [{ module: plugin("keeps-beginning"), options: { keep: 6 }, ...PATIENT }];
    const troupe = await start(served, { plugins, store });
    const session = await troupe.session("s");
    await turns(session, 3);
    expect(await session.compact()).toBe(true);
    await session.turn("Question 4");
    const [last, next] = [request(served, 5), request(served, 6)];
    expect(sharedBlocks(last, next)).toBe(blockWith(last, "Question 2"));
    expect(next.blocks.slice(sharedBlocks(last, next)).join("")).toMatch(/12 messages so far.*Question 4/);
    await troupe.close();
    const again = await (await start(served, { plugins, store })).session("s");
    expect((await again.messages()).map(({ role }) => role).join(" ")).toBe(
      "user assistant tool assistant user user assistant tool assistant",
    );
    expect((await again.view()).messageCount).toBe(9);
    await again.turn("Question 5");
    expect(sharedBlocks(request(served, 7), request(served, 8))).toBe(request(served, 7).blocks.length);
  });
});

describe("the cache policy", () => {
  const marked = ({ blocks, marks }: PricedRequest) =>
    marks.map((mark) => (JSON.parse(blocks[mark] ?? "") as [string])[0]);

  test("marks by itself four places at most, and the model reads nearly everything from the cache", async () => {
    const served = await provider();
    const troupe = await start(served, { plugins: [clock()] });
    const session = await troupe.session("s");
    await turns(session, 3);
    expect(marked(request(served, 0))).toEqual(["system", "user", "user"]);
    expect(marked(request(served, 5))).toEqual(["system", "user", "user", "user"]);
    const { cache } = await session.spending();
    expect(cache.cachedInputTokens).toBe(
      served.requests.reduce((sum, { usage }) => sum + usage.cache_read_input_tokens, 0),
    );
    expect(cache.cacheReadShare).toBeGreaterThan(0.7);
    expect(cache.byModel["anthropic.messages:claude-test"]).toMatchObject({ cacheReadShare: cache.cacheReadShare });
    const { usage } = await session.view();
    expect(usage.cacheReadTokens).toBe(cache.cachedInputTokens);
    expect((await troupe.stats()).cache).toEqual({ ...cache, byAgent: {} });
  });

  test("is counted by agent, and a session that goes over to another agent is told of no broken prefix", async () => {
    const served = await provider({ calls: 0 });
    const agents = {
      "first@1": { instructions: INSTRUCTIONS },
      "second@1": { instructions: `${INSTRUCTIONS} Be brief.` },
    };
    const troupe = await start(served, { agents });
    const session = await troupe.session("s", { agent: "first" });
    await turns(session, 2);
    await session.setAgent("second");
    expect(broken((await session.turn("Question 3")).issues)).toEqual([]);
    const { cache } = await troupe.stats();
    // Only its second request begins as one before it; the other agent's has another system text.
    const cachedInputTokens = request(served, 1).usage.cache_read_input_tokens;
    expect(cachedInputTokens).toBeGreaterThan(1_000);
    expect(cache.byAgent).toEqual({
      "first@1": expect.objectContaining({ cachedInputTokens }),
      "second@1": expect.objectContaining({ cacheReadShare: 0 }),
    });
  });

  test("off marks nothing, and points mark what they name", async () => {
    const served = await provider({ calls: 0 });
    const session = await (await start(served, { cache: "off" })).session("s");
    await session.turn("Question 1");
    await session.configure({ cache: ["tools", { at: "end", ttl: "1h" }] });
    await session.turn("Question 2");
    expect(request(served, 0).marks).toEqual([]);
    expect(marked(request(served, 1))).toEqual(["tool", "user"]);
  });

  test("that is none is refused where it is given", async () => {
    await expect(startTroupe({ cache: "always" as "auto" })).rejects.toMatchObject({ code: "invalid_cache_policy" });
    await expect(startTroupe({ window: { maxMessages: 1 } })).rejects.toMatchObject({ code: "invalid_window" });
  });
});

describe("in development a turn whose request does not begin with the last one", () => {
  test("names the plugin that changed what it contributes to the system text", async () => {
    const served = await provider();
    const session = await (await start(served, { plugins: [clock({ slot: "guidance" })] })).session("s");
    expect(broken((await session.turn("Question 1")).issues)).toEqual([]);
    expect(broken((await session.turn("Question 2")).issues)).toEqual([
      {
        kind: "plugin",
        code: "cache_prefix_broken",
        pluginId: "test.clock",
        message:
          "The provider cannot read this request from its cache: plugin test.clock changed what it contributes to the system text. Keep it the same from turn to turn, or mark the contribution `volatile: true`.",
      },
    ]);
  });

  test("names the plugin that slides its window with every turn", async () => {
    const served = await provider();
    const plugins = [{ module: plugin("slides"), options: { last: 4 }, ...PATIENT }];
    const session = await (await start(served, { plugins })).session("s");
    await turns(session, 2);
    const [issue] = broken((await session.turn("Question 3")).issues);
    expect(issue).toMatchObject({ pluginId: "test.slides" });
    expect(issue?.message).toContain("plugin test.slides chose other messages of the history, from message 0 on");
  });

  test("names the plugin that took a tool away, and the one that brought it back", async () => {
    const served = await provider({ calls: 0 });
    const session = await (await start(served, { plugins: [{ module: plugin("hides-tools"), ...PATIENT }] })).session(
      "s",
    );
    await session.turn("Question 1");
    for (const [remove, how] of [
      [["note"], "the tool note was taken away by plugin test.hides"],
      [[], "the tool note was added by plugin test.hides"],
    ] as const) {
      await session.command("hide", { remove });
      const [issue] = broken((await session.turn("Question 2")).issues);
      expect(issue).toMatchObject({ pluginId: "test.hides", message: expect.stringContaining(how) });
    }
  });

  test("names the setting that changed the system text", async () => {
    const served = await provider({ calls: 0 });
    const session = await (await start(served)).session("s");
    await session.turn("Question 1");
    const prompt = { slots: { guidance: { contributions: [{ content: "Briefly." }] } } };
    const [ofTurn] = broken((await session.turn("Question 2", { prompt })).issues);
    expect(ofTurn).toMatchObject({
      kind: "runtime",
      message: expect.stringContaining("the setting prompt of the turn"),
    });
    await session.turn("Question 3");
    await session.configure({ instructions: `${INSTRUCTIONS} Be brief.` });
    const [ofSession] = broken((await session.turn("Question 4")).issues);
    expect(ofSession?.message).toContain("the setting instructions changed the system text");
    const [ofCall] = broken((await session.turn("Question 5", { modelOptions: { activeTools: [] } })).issues);
    expect(ofCall?.message).toContain("the setting activeTools changed the tools");
  });

  test("says nothing where the prefix was kept, was cut by the window or the compaction, or is too short to be cached", async () => {
    const served = await provider();
    const plugins = [clock(), { module: plugin("keeps-beginning"), options: {}, ...PATIENT }];
    const window = { maxMessages: 6, keepMessages: 2 };
    const session = await (await start(served, { plugins, window })).session("s");
    const issues: TurnIssue[] = [];
    for (let n = 1; n <= 5; n++) issues.push(...(await session.turn(`Question ${n}`)).issues);
    await session.compact();
    issues.push(...(await session.turn("Question 6")).issues);
    const short = await (await start(served, { instructions: "", plugins: [clock({ slot: "guidance" })] })).session(
      "t",
    );
    for (let n = 1; n <= 2; n++) issues.push(...(await short.turn(`Question ${n}`)).issues);
    expect(issues).toEqual([]);
  });

  test("says nothing of a turn that another model answers, whatever else is new in it", async () => {
    const served = await provider({ calls: 0 });
    const models = { other: scriptedModel({ turns: [[{ text: "Done." }]] }) };
    const session = await (await start(served, { models })).session("s");
    await session.turn("Question 1");
    const prompt = { slots: { guidance: { contributions: [{ content: "Briefly." }] } } };
    expect((await session.turn("Question 2", { model: "other", prompt })).issues).toEqual([]);
  });

  test("is nobody's concern when the runtime is not in development", async () => {
    const served = await provider();
    const session = await (await start(served, { plugins: [clock({ slot: "guidance" })], development: false })).session(
      "s",
    );
    await session.turn("Question 1");
    expect((await session.turn("Question 2")).issues).toEqual([]);
  });
});
