import { cpSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { createTroupe, pendingTool, type StoreProgress, type Troupe } from "troupe";
import { expect, onTestFinished, test } from "vitest";
import { EMPTY_OBJECT, fixture, plugin, tempFolder, until } from "../../support/runtime.js";

/** Layouts whose golden store has turns that are not over; see test/store/fixtures/make-golden-turns.mjs. */
const LAYOUTS = [2, 3];

/** A runtime over a copy of a golden store, and the tools it calls there. */
async function started(layout: number) {
  const folder = await tempFolder();
  const golden = new URL(`../../store/fixtures/golden-v${layout}-turns`, import.meta.url);
  cpSync(fileURLToPath(golden), join(folder, "store"), { recursive: true });
  const called: string[] = [];
  const progress: StoreProgress[] = [];
  const tool = (name: string, execute: () => unknown) => ({
    description: name,
    inputSchema: EMPTY_OBJECT,
    execute: (_args: unknown, { sessionId }: { readonly sessionId: string }) => {
      called.push(`${sessionId} ${name}`);
      return execute() as string;
    },
  });
  const troupe = await createTroupe({
    sessionWorkers: 1,
    drainMs: 100,
    store: { path: join(folder, "store"), onProgress: (step) => progress.push(step) },
    model: new URL(`${fixture("models/counts.mjs")}?file=${encodeURIComponent(join(folder, "calls"))}`),
    plugins: ["counter", "notes"].map((name) => ({ module: plugin(name) })),
    tools: {
      quick: tool("quick", () => "quick"),
      approve: tool("approve", () => pendingTool({ announcement: { question: "May I?" } })),
      slow: tool("slow", () => "slow"),
    },
  });
  onTestFinished(() => troupe.close());
  return { troupe, called, progress };
}

test("a host is told how far a store of an older layout is brought up to date, and nothing of one that is", async () => {
  const { progress } = await started(2);
  const [first] = progress;
  expect(first).toEqual({ step: "migrate", done: 0, total: expect.any(Number) });
  expect(progress.every(({ step, done, total }) => step === "migrate" && done <= (total ?? 0))).toBe(true);
  expect((await started(3)).progress).toEqual([]);
});

const textsIn = async (troupe: Troupe, id: string) =>
  (await (await troupe.session(id)).messages()).flatMap(({ parts }) =>
    parts.flatMap((part) => (part.type === "text" ? [part.text] : [])),
  );

test.each(LAYOUTS)(
  "turns that a store of layout %i has unfinished are gone on with when it is opened",
  async (layout) => {
    const { troupe, called } = await started(layout);
    await until("both unfinished turns are stored", async () => {
      const ends = [await textsIn(troupe, "unfinished"), await textsIn(troupe, "first")];
      return ends.every((texts) => texts.at(-1) === "after");
    });
    expect(await textsIn(troupe, "unfinished")).toEqual(["before", "before", "quick slow after", "after"]);
    expect(await textsIn(troupe, "first")).toEqual(["quick slow after", "after"]);
    // What was done is not done again.
    expect(called.sort()).toEqual(["first slow", "unfinished slow"]);
  },
);

test.each(LAYOUTS)(
  "a turn of a store of layout %i that waits for an approval goes on when it is given",
  async (layout) => {
    const { troupe, called } = await started(layout);
    const session = await troupe.session("waiting");
    // The key of the tool call: session, turn and call, as its tool was told.
    const turn = session.turn("quick approve after", { key: "asked" });
    await troupe.completeTool(JSON.stringify(["waiting", "t2", "c1"]), { value: "yes" });
    expect(await turn).toMatchObject({ turnIndex: 2, text: "after" });
    expect(called.filter((each) => each.startsWith("waiting"))).toEqual([]);
  },
);

test.each(LAYOUTS)("results, receipts and plugin state of a store of layout %i are known as before", async (layout) => {
  const { troupe } = await started(layout);
  const session = await troupe.session("plain");
  expect(await session.turn("two", { key: "second" })).toMatchObject({ turnIndex: 2, text: "two" });
  await session.command("notes.add", { text: "milk" }, { key: "milk" });
  expect(await session.query("notes.list")).toEqual(["milk"]);
  expect(await session.turn("count five")).toMatchObject({ turnIndex: 5, text: "five" });
  expect(await (await troupe.session("plain/fork")).info()).toMatchObject({ parent: "plain", turns: 5 });
});
