import { type Session, scriptedModel, type Troupe } from "troupe";
import { expect, test } from "vitest";
import { plugin, RESIDENT, startTroupe } from "../../support/runtime.js";

interface OnThread {
  readonly threadId: number;
  readonly ajv: boolean;
}

/** One session on each session worker, with the thread it is on. */
async function sessionOnEach(troupe: Troupe): Promise<(OnThread & { readonly session: Session })[]> {
  const found = new Map<number, OnThread & { readonly session: Session }>();
  const { workers } = await troupe.stats();
  for (let n = 0; found.size < workers.length && n < 50; n++) {
    const session = await troupe.session(`s${n}`);
    const thread = (await session.query("test.thread")) as OnThread;
    if (!found.has(thread.threadId)) found.set(thread.threadId, { ...thread, session });
  }
  return [...found.values()];
}

const script = scriptedModel({
  turns: [[{ toolCalls: [{ tool: "name_it", args: { name: "UPPER" } }] }, { text: "done" }]],
});

test("a schema that only ajv can judge is judged by the first session worker, and by no other, nor by its successor", async () => {
  const troupe = await startTroupe({
    ...RESIDENT,
    sessionWorkers: 3,
    model: script,
    plugins: [{ module: plugin("strict-schema"), tier: "inline" }],
  });
  const each = await sessionOnEach(troupe);
  const first = (await troupe.stats()).workers[0]?.threadId;
  expect(each.map(({ threadId, ajv }) => [threadId === first, ajv]).sort()).toEqual([
    [false, false],
    [false, false],
    [true, true],
  ]);
  await troupe.kill({ sessionWorker: 0 });
  expect((await sessionOnEach(troupe)).map(({ ajv }) => ajv)).toEqual([false, false, false]);
});

test("a session worker that was told of a schema still refuses arguments that do not fit it", async () => {
  const troupe = await startTroupe({
    ...RESIDENT,
    sessionWorkers: 2,
    model: script,
    plugins: [{ module: plugin("strict-schema"), tier: "inline" }],
  });
  for (const { session, ajv } of await sessionOnEach(troupe)) {
    const { toolCalls } = await session.turn("hi");
    expect(JSON.stringify(toolCalls)).toContain("name must match pattern");
    // What fails by a pattern is found on another thread.
    expect(((await session.query("test.thread")) as OnThread).ajv).toBe(ajv);
  }
});
