import { scriptedModel, type Troupe } from "troupe";
import { expect, test } from "vitest";
import { valueIn } from "../../support/asking.js";
import { plugin, startTroupe } from "../../support/runtime.js";
import { Watching } from "../../support/watching.js";

const OF_SESSION = 16;
const OF_RUNTIME = 256;

/** So many calls in each of so many sessions, and what came of each. */
async function inSessions(troupe: Troupe, command: string, call: (nth: number) => readonly [string, object]) {
  const codes: (string | undefined)[] = [];
  for (let n = 0; n <= OF_RUNTIME / OF_SESSION; n++) {
    const calls = Array.from({ length: n * OF_SESSION < OF_RUNTIME ? OF_SESSION : 1 }, (_, nth) => call(nth));
    const answers = await (await Watching.in(troupe, `s${n}`, command)).ask(...calls);
    codes.push(...answers.map(({ error }) => error));
  }
  return codes;
}

const ALL_BUT_ONE = Array.from({ length: OF_RUNTIME }, () => undefined);

test("a runtime has 256 monitors at once and no more, and has room when one has ended", async () => {
  const gauge = { description: "Says", inputSchema: { type: "object" }, execute: () => "up" };
  const troupe = await startTroupe({ plugins: [{ module: plugin("watches") }], tools: { gauge } });
  const monitor = (nth: number) => ["startMonitor", { id: `m${nth}`, tool: "gauge", everyMs: 600_000 }] as const;
  expect(await inSessions(troupe, "test.watches", monitor)).toEqual([...ALL_BUT_ONE, "monitor_limit"]);
  await (await Watching.in(troupe, "s0")).stop("m0");
  await (await Watching.in(troupe, "last")).start({ id: "m", tool: "gauge", everyMs: 600_000 });
}, 60_000);

test("a session has 16 monitors and no more, also when they are all asked for at once", async () => {
  const gauge = { description: "Says", inputSchema: { type: "object" }, execute: () => "up" };
  const monitor = (nth: number) => ["startMonitor", { id: `m${nth}`, tool: "gauge", everyMs: 600_000 }];
  const toolCalls = Array.from({ length: 20 }, (_, nth) => ({ tool: "watches_ask", args: { calls: [monitor(nth)] } }));
  const troupe = await startTroupe({
    plugins: [{ module: plugin("watches") }],
    tools: { gauge },
    model: scriptedModel({ turns: [[{ toolCalls: toolCalls as never }, { text: "done" }]] }),
  });
  const session = await troupe.session("s");
  const turn = await session.turn("Watch everything.");
  const refused = turn.toolCalls.filter(({ output }) => JSON.stringify(output).includes("monitor_limit"));
  expect(refused).toHaveLength(4);
  expect(await session.tasks()).toHaveLength(16);
});

test("a runtime has 256 processes at once and no more, and has room when one has ended", async () => {
  const troupe = await startTroupe({
    plugins: [{ module: plugin("runs-processes"), permissions: { processes: true }, blockedMs: 600_000 }],
  });
  const start = () => ["start", { argv: ["sleep", "1000"] }] as const;
  expect(await inSessions(troupe, "test.runs", start)).toEqual([...ALL_BUT_ONE, "process_limit"]);
  await (await troupe.session("s0")).close();
  const [started] = await (await Watching.in(troupe, "last", "test.runs")).ask(start());
  expect(started?.error).toBeUndefined();
}, 60_000);

test("of a session's processes that have ended the last 32 are known", async () => {
  const troupe = await startTroupe({
    plugins: [{ module: plugin("runs-processes"), permissions: { processes: true }, blockedMs: 600_000 }],
  });
  const runs = await Watching.in(troupe, "s", "test.runs");
  const ids: string[] = [];
  for (let n = 0; n < 40; n++) {
    const [started] = await runs.ask(["start", { argv: ["true"] }]);
    const { id } = valueIn<{ readonly id: string }>(started);
    ids.push(id);
    await runs.ask(["wait", id, { waitMs: 10_000 }]);
  }
  const [last, listed] = await runs.ask(["start", { argv: ["sleep", "1000"] }], ["list"]);
  const { id: running } = valueIn<{ readonly id: string }>(last);
  const known = valueIn<readonly { readonly id: string }[]>(listed).map(({ id }) => id);
  expect(known).toEqual([...ids.slice(-32), running]);
  expect((await runs.ask(["wait", ids[0], {}]))[0]?.error).toBe("process_unknown");
});
