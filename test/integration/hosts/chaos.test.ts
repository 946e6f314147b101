import type { TroupeOptions } from "troupe";
import { expect, test } from "vitest";
import type * as Audit from "../../../bench/chaos/audit.js";
import type * as Chaos from "../../../bench/chaos/chaos.js";
import type * as Processes from "../../../bench/chaos/processes.js";
import type * as Records from "../../../bench/chaos/record.js";
import { plugin, startTroupe, tempFolder } from "../../support/runtime.js";

/** What `npm run chaos` runs, as it is built: its plugins are modules of the build. */
const built = <Module>(name: string): Promise<Module> =>
  import(new URL(`../../../dist/bench/chaos/${name}.js`, import.meta.url).href) as Promise<Module>;
const { chaos } = await built<typeof Chaos>("chaos");
const { chaosOfProcesses } = await built<typeof Processes>("processes");
const { audit } = await built<typeof Audit>("audit");
const { answerTo, TurnRecord } = await built<typeof Records>("record");

test("threads of every kind are killed one after the other, and every turn has one outcome that the store agrees with", async () => {
  const plan = { seed: 3, sessions: 40, seconds: Number.POSITIVE_INFINITY, kills: 24, killEveryMs: 50, askers: 12 };
  const { violations, kills, finished, events } = await chaos({ ...plan, progress: () => undefined });
  // Of events too: each restart, quarantine, breaker and resumed turn once, no secret and nothing of what was said.
  expect(violations).toEqual([]);
  for (const type of [
    "plugin_restarted",
    "session_worker_replaced",
    "turn_resumed",
    "session_refused",
    "breaker_closed",
  ])
    expect(events[type] ?? 0, type).toBeGreaterThanOrEqual(1);
  expect(finished).toBeGreaterThanOrEqual(plan.sessions);
  // The seed decides which.
  expect(kills).toEqual({ counter: 3, group: 8, pool: 3, "session worker": 4, works: 6 });
});

test("a process is killed in the middle of a turn again and again, with threads of it between: every turn has one outcome in one of the next, and no process is left", async () => {
  const plan = { seed: 3, sessions: 20, processKills: 2, killProcessEveryMs: 200, killEveryMs: 250, askers: 4 };
  const { violations, processKills, finished, resumed, askedAgain, answeredAgain } = await chaosOfProcesses({
    ...plan,
    progress: () => undefined,
  });
  expect(violations).toEqual([]);
  // Each kill meets a turn that a tool holds, at least: the next process takes it up, and its caller asks there again.
  expect([processKills, resumed >= 2, askedAgain >= 2]).toEqual([2, true, true]);
  expect(answeredAgain).toBe(2 * 16);
  expect(finished).toBeGreaterThanOrEqual(plan.sessions + 2);
}, 180_000);

test("what chaos compares finds turns that are lost, doubled or nobody's, and state that is behind", async () => {
  const options: TroupeOptions = { store: { path: await tempFolder() }, plugins: [{ module: plugin("offends") }] };
  const troupe = await startTroupe(options);
  const session = await troupe.session("s");
  for (const input of ["twice", "nobody's", "twice"]) await session.turn(input);
  await troupe.close();
  const record = new TurnRecord();
  await record.ask("s", "lost", async () => answerTo("lost"));
  await record.ask("s", "twice", async () => answerTo("twice"));
  for (const name of ["a", "b", "c"]) await record.ask("s", name, async () => "what nobody asked");
  expect(record.violations).toHaveLength(3);
  record.violations.length = 0;
  await audit(options, record, "test.offends.turns");
  expect(record.violations).toEqual([
    "s: the finished turn lost is in the store 0 times.",
    "s: the finished turn twice is in the store 2 times.",
    ...["a", "b", "c"].map((name) => `s: the finished turn ${name} is in the store 0 times.`),
    "s: the store has a turn nobody's that nobody was told of.",
    "s: the plugin's state counts 3 turns; it should be 5 to 5.",
  ]);
});
