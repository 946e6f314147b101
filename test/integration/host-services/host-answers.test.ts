import { createTroupe, type TroupeOptions } from "troupe";
import { describe, expect, onTestFinished, test } from "vitest";
import { type Call, spentBeside, usage } from "../../support/asking.js";
import { counted, gates } from "../../support/journaled.js";
import { PATIENT, plugin, until } from "../../support/runtime.js";

/** What hooks asked of the host, and were told, before a crash is what they are told behind it. */

const direct = (source: string, text = "?"): Call => [
  "directCompletion",
  { messages: [{ role: "user", text }] },
  source,
];

type Hooks = Readonly<Record<string, readonly Call[]>>;
const asksIn = (tier: "worker" | "inline", options: Hooks) => ({
  module: plugin("asks-host-in-hooks"),
  tier,
  options,
  ...PATIENT,
});

/** A turn whose worker dies while its tool runs; `answered` is what its hooks were told in the end. */
async function turnOverCrash(plugins: NonNullable<TroupeOptions["plugins"]>, crashes = true) {
  const gate = gates();
  const { start, lines } = await counted({ plugins, tools: { wait: gate.tool("wait") } });
  const troupe = await start();
  const session = await troupe.session("s");
  const turn = session.turn("wait answer");
  await until("the tool runs", () => gate.calls.length === 1);
  if (crashes) {
    await troupe.kill({ sessionWorker: 0 });
    await until("the tool runs again", () => gate.calls.length === 2);
  }
  gate.open("wait");
  const result = await turn;
  const asked = await session.query<Record<string, readonly { value?: unknown; error?: string }[]>>("host.asked");
  return { result, asked, lines: await lines(), view: await session.view(), troupe };
}

describe.each(["worker", "inline"] as const)("a hook of a plugin in the tier %s, over a crash", (tier) => {
  test("is given the completion it has paid for, which is counted once", async () => {
    const options = { promptContributor: [direct("title"), direct("tags")] };
    const { result, asked, lines, view } = await turnOverCrash([asksIn(tier, options)]);
    expect(result.text).toBe("answer");
    expect(lines).toEqual(["direct title", "direct tags", "model t1 0", "model t1 1"]);
    expect(asked.promptContributor).toMatchObject([{ value: { text: "?" } }, { value: { text: "?" } }]);
    expect(spentBeside(view)).toEqual({ title: usage(10, 5), tags: usage(10, 5) });
  });

  test("is told again that a completion broke off, which is not asked for a second time", async () => {
    const { asked, lines } = await turnOverCrash([asksIn(tier, { beforeToolCall: [direct("cut")] })]);
    expect(lines).toEqual(["model t1 0", "direct cut", "model t1 1"]);
    expect(asked.beforeToolCall).toEqual([{ error: "direct_completion_failed" }]);
  });

  test("makes no session and starts no turn twice", async () => {
    const calls: Call[] = [
      ["createSession", { sessionId: "other", relation: "root" }],
      ["startTurn", "other", "hello"],
      ["appendSessionNodes", "other", { nodes: [{ kind: "message", message: { role: "user", text: "more" } }] }],
      ["snapshotSession", "other"],
    ];
    const { asked, lines, view } = await turnOverCrash([asksIn(tier, { beforeToolCall: calls })]);
    expect(asked.beforeToolCall).toMatchObject([
      { value: { sessionId: "other" } },
      { value: { text: "hello", turnIndex: 1 } },
      { value: {} },
      { value: { sessionId: "other", turnIndex: 1, messageCount: 3 } },
    ]);
    expect(lines).toEqual(["model t1 0", "model t1 0", "model t1 1"]);
    expect(spentBeside(view)).toEqual({ child: usage(10, 5) });
  });

  test("finds what it changed in its own session as it left it", async () => {
    const options = {
      beforeTurn: [
        ["setToolMembership", "@own", ["weather"], false],
        ["setToolAvailability", "@own", "ask_host", null],
      ] as Call[],
    };
    const { asked, view } = await turnOverCrash([asksIn(tier, options)]);
    const quiet = await turnOverCrash([asksIn(tier, options)], false);
    expect(asked.beforeTurn).toEqual([{ value: 2 }, { value: 3 }]);
    expect([quiet.asked.beforeTurn, quiet.view.toolGeneration]).toEqual([asked.beforeTurn, view.toolGeneration]);
  });

  test("pays once for what is asked before a tool call, and once for what is asked behind it", async () => {
    const { lines } = await turnOverCrash([
      asksIn(tier, { beforeToolCall: [direct("before")], afterToolCall: [direct("after")] }),
    ]);
    expect(lines).toEqual(["model t1 0", "direct before", "direct after", "model t1 1"]);
  });
});

// turn §8.68
test("a tool that asks the host is an attempt as a whole: interrupted, it asks anew, and may ask otherwise", async () => {
  const { start, lines } = await counted({
    plugins: [{ module: plugin("completes"), options: { text: "a" }, ...PATIENT }],
  });
  const troupe = await start();
  const session = await troupe.session("s");
  const turn = session.turn("complete answer");
  const hanging = async () => (await lines()).filter((line) => line === "direct hangs").length;
  await until("the tool hangs", async () => (await hanging()) === 1);
  await troupe.kill({ sessionWorker: 0 });
  await until("the tool hangs again", async () => (await hanging()) === 2);
  turn.cancel();
  expect(await turn).toMatchObject({ outcome: { reason: "cancelled" }, issues: [] });
  expect(await lines()).toEqual([
    "direct title",
    "model t1 0",
    "direct inside",
    "direct hangs",
    "direct inside",
    "direct hangs",
  ]);
});

describe("a turn that the next process takes up", () => {
  /** The same turn in two runtimes, one after the other, whose plugins complete these texts. */
  async function completed(first: string, second: string) {
    const gate = gates();
    const { options, lines } = await counted({ tools: { wait: gate.tool("wait") } });
    const start = async (text: string) => {
      // Where nothing may differ, a turn that is taken up asks its hooks again.
      const journal = first === second ? true : ({ onMismatch: "stop" } as const);
      const plugins = [{ module: plugin("completes"), options: { text } }];
      const troupe = await createTroupe({ ...options, journal, plugins });
      onTestFinished(() => troupe.close());
      return troupe;
    };
    const troupe = await start(first);
    (await troupe.session("s")).turn("wait answer", { key: "k" }).then(undefined, () => undefined);
    await until("the tool runs", () => gate.calls.length === 1);
    await troupe.close();
    const session = await (await start(second)).session("s");
    const again = session.turn("wait answer", { key: "k" });
    if (first === second) {
      await until("the tool runs again", () => gate.calls.length === 2);
      gate.open("wait");
    }
    return { result: await again, lines };
  }

  test("goes on with the completions it has paid for", async () => {
    const { result, lines } = await completed("a", "a");
    expect(result).toMatchObject({ turnIndex: 1, text: "answer" });
    expect(await lines()).toEqual(["direct title", "model t1 0", "model t1 1"]);
  });

  test("ends as its hook's policy says when the hook asks for something else", async () => {
    const { result, lines } = await completed("a", "b");
    expect(result.outcome).toMatchObject({ type: "stopped", reason: "runtime_error" });
    expect(result.issues).toMatchObject([
      {
        code: "plugin_prompt",
        message: expect.stringContaining(
          "the turn is not repeating itself. They differ at $.args[0].messages[0].text.",
        ),
      },
    ]);
    expect(await lines()).toEqual(["direct title", "model t1 0"]);
  });
});

describe("what a hook asks of the host costs", () => {
  const options: Hooks = {
    promptContributor: [direct("title"), ["snapshotCurrent"], ["toolCatalog", "@own"], direct("tags")],
  };

  async function recorded(journal: boolean): Promise<number> {
    const { start } = await counted({ plugins: [asksIn("inline", options)], journal });
    const troupe = await start();
    const session = await troupe.session("s");
    const before = (await troupe.stats()).store.recorded;
    await session.turn("answer");
    return (await troupe.stats()).store.recorded - before;
  }

  test("a row for each service that changes something, and none for what it only reads", async () => {
    // Its beginning, what it was asked with, the two completions and, because hooks see it, the answer.
    expect(await recorded(true)).toBe(5);
  });

  test("no row without a journal", async () => {
    expect(await recorded(false)).toBe(0);
  });
});
