import { mkdtempSync, rmSync, statSync } from "node:fs";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { createTroupe, type Session, scriptedModel, type Troupe, type TroupeOptions } from "troupe";
import { beginSchedule, checkSchedule, type RowChange } from "../src/kernel/index.js";
import { changeOf } from "../src/runtime/schedules/index.js";
import { type BackendAtOnce, openLmdb, SCHEDULES } from "../src/store/index.js";
import { step } from "./background-step.js";
import { eachOf, exposeGc, heldBy, MEMORY_PLUGIN } from "./measuring/held.js";
import { INPUT, SCRIPT } from "./measuring/reference-turn.js";
import type { Bench, BenchResult, BenchRun } from "./measuring/report.js";
import { compare, median, middle, takeRounds } from "./measuring/sampling.js";
import { storeCopies } from "./measuring/stored-copies.js";

const REFERENCE = { module: new URL("./plugins/reference.js", import.meta.url), tier: "inline" } as const;
const DAY = 24 * 3_600_000;
/** Calls under way at once while sessions are opened and parked, and schedules made. */
const AT_ONCE = 200;
/** Sessions that are woken at one instant. */
const WOKEN = 1_000;
/** Their schedules are made so long before it. */
const LEAD_MS = 1_000;
/** In so many parts schedules are made, with a look at what is held behind each. */
const PARTS_MADE = 8;
/** How often the store is asked whether it has everything. */
const LOOK_MS = 5;
/** Schedules that are due when the next ones are looked for. */
const DUE = 10;
/** What a look asks for at most, as the runtime's own. */
const PAGE = 256;

/** The parts of the bench, each in a store of its own. */
const PARTS: Readonly<Record<string, (run: BenchRun) => Promise<BenchResult>>> = { held, due, woken, step };

export const background: Bench = {
  name: "background",
  question:
    "What does work cost that goes on by itself: schedules of sleeping sessions, waking them, and the steps of tasks?",
  bars: [
    {
      id: "schedule_bytes",
      atMost: 16,
      says: "bytes of memory a schedule adds to a parked session, session worker and main thread together",
    },
    { id: "schedule_disk_bytes", says: "bytes a schedule takes in the store's file" },
    {
      id: "due_100k_vs_1k",
      atMost: 1.5,
      says: "finding what is due and what is next among 100,000 schedules over 1,000",
    },
    {
      id: "wake_vs_direct",
      atLeast: 0.7,
      says: `turns/s of ${WOKEN} parked sessions woken at one instant over the same turns asked directly`,
    },
    {
      id: "step_vs_tool",
      atMost: 1.2,
      says: "time of a task's step over that of a journaled tool call, one after another, stored and synced",
    },
  ],
  async run(run) {
    const results: BenchResult[] = [];
    for (const [name, part] of Object.entries(PARTS))
      if (run.only.length === 0 || run.only.includes(name)) results.push(await part(run));
    return {
      ratios: Object.assign({}, ...results.map(({ ratios }) => ratios)),
      samples: Object.assign({}, ...results.map(({ samples }) => samples)),
      tables: results.flatMap(({ tables }) => tables),
      notes: results.flatMap(({ notes }) => notes),
    };
  },
};

/** Memory and disk of one schedule for each of many parked sessions. */
async function held(run: BenchRun): Promise<BenchResult> {
  exposeGc();
  const count = run.quick ? 20_000 : 100_000;
  const ids = namesOf(count);
  return withStore(ids, { sessionWorkers: 1, plugins: [MEMORY_PLUGIN] }, async (troupe, folder) => {
    const probe = await troupe.session("probe");
    const put = (id: string) => troupe.schedules.put(id, daily(id, Date.now() + DAY));
    let opened = 0;
    // Compiled code and what threads set up once are nobody's.
    await eachOf(ids.slice(0, AT_ONCE * 5), AT_ONCE, put);
    await eachOf(ids, AT_ONCE, async (id) => {
      const session = await troupe.session(id);
      await session.inputs();
      await session.park();
      if (++opened % 5_000 === 0) run.progress(`${opened} of ${count} sessions parked`);
    });
    const { parked } = (await troupe.stats()).sessions;
    if (parked < count) throw new Error(`Only ${parked} of ${count} sessions are parked.`);
    for (const id of ids.slice(0, AT_ONCE * 5)) await troupe.schedules.remove(id);
    const without = { ...(await heldBy(probe)), file: sizeOf(folder) };
    const started = performance.now();
    const points: { made: number; worker: number; main: number; file: number }[] = [{ made: 0, ...without }];
    for (let part = 1; part <= PARTS_MADE; part++) {
      const made = Math.round((count * part) / PARTS_MADE);
      await eachOf(ids.slice(points.at(-1)?.made, made), AT_ONCE, put);
      run.progress(`${made} of ${count} schedules`);
      points.push({ made, ...(await heldBy(probe)), file: sizeOf(folder) });
    }
    const seconds = (performance.now() - started) / 1_000;
    const withThem = points.at(-1) as (typeof points)[number];
    // What a runtime holds once it has schedules at all is none of theirs: only what grows with them is.
    const each = (what: keyof typeof without) => slopeOf(points.map((point) => [point.made, point[what]]));
    const atOnce = withThem.worker + withThem.main - without.worker - without.main;
    return {
      ratios: { schedule_bytes: Math.max(0, each("worker") + each("main")), schedule_disk_bytes: each("file") },
      samples: { sessions: count, without, withThem, points, schedulesPerSecond: count / seconds },
      tables: [
        {
          title: `${count} parked sessions, one schedule each`,
          columns: ["bytes per session", "session worker", "main thread", "store's file"],
          rows: [["added by the schedules", each("worker"), each("main"), each("file")]],
        },
      ],
      notes: [
        `Heap and external memory of the two threads after collecting, beside the same sessions parked and no schedules: the middle slope of ${points.length} points while they are made. In all the threads hold ${(atOnce / 1e6).toFixed(1)} MB more. ${(count / seconds).toFixed(0)} schedules made a second, ${AT_ONCE} at once.`,
      ],
    };
  });
}

/** The middle one of the slopes between any two points: what is there once for all, whenever it comes, has no part in it. */
function slopeOf(points: readonly (readonly [number, number])[]): number {
  return median(
    points.flatMap(([x, y], at) => points.slice(at + 1).map(([laterX, laterY]) => (laterY - y) / (laterX - x))),
  );
}

/** What the runtime's timer asks the store for, beside few and many schedules. */
async function due(run: BenchRun): Promise<BenchResult> {
  const counts = { "1k": 1_000, "100k": 100_000 } as const;
  const names = Object.keys(counts) as (keyof typeof counts)[];
  const folders = names.map(() => mkdtempSync(join(tmpdir(), "troupe-bench-")));
  const backends = folders.map((folder) => openLmdb(folder));
  const now = Date.now();
  try {
    for (const [at, name] of names.entries()) writeSchedules(backends[at] as BackendAtOnce, counts[name], now, run);
    const rounds = await takeRounds(
      names.map((name, at) => ({ name, measure: async (ms) => look(backends[at] as BackendAtOnce, now, ms) })),
      {
        budgetMs: run.quick ? 3_000 : 15_000,
        slotMs: 200,
        least: 5,
        onRound: (n) => run.progress(`looks: round ${n}`),
      },
    );
    const { middle: ratio, low, high } = compare(rounds, (round) => round["100k"] / round["1k"]);
    return {
      ratios: { due_100k_vs_1k: ratio },
      samples: { rounds: rounds.length, low, high, us: Object.fromEntries(names.map((n) => [n, middle(rounds, n)])) },
      tables: [
        {
          title: `Finding the ${DUE} that are due, and the next one`,
          columns: ["schedules", "us"],
          rows: names.map((name) => [String(counts[name]), middle(rounds, name)]),
        },
      ],
      notes: [
        `${rounds.length} rounds, compared round by round: 10 % of them below ${low.toFixed(2)}, 10 % above ${high.toFixed(2)}.`,
      ],
    };
  } finally {
    for (const backend of backends) backend.close();
    for (const folder of folders) rmSync(folder, { recursive: true, force: true });
  }
}

function writeSchedules(backend: BackendAtOnce, count: number, now: number, run: BenchRun): void {
  const clock = { now: now - DAY, chance: 0, cron: () => null };
  for (let from = 0; from < count; from += 1_000) {
    const changes = Array.from({ length: 1_000 }, (_, n): RowChange => {
      const at = from + n < DUE ? now : now + DAY + from + n;
      return changeOf(`s${from + n}`, undefined, beginSchedule(checkSchedule(daily(`s${from + n}`, at)), clock));
    });
    for (const result of backend.write([{ kind: "rows", changes }])) if ("error" in result) throw result.error;
    if (from % 20_000 === 0) run.progress(`${from} of ${count} schedules written`);
  }
}

function look(backend: BackendAtOnce, now: number, ms: number): number {
  const started = performance.now();
  let done = 0;
  for (; done === 0 || performance.now() < started + ms; done++) {
    const found = backend.rowsInOrder({ table: SCHEDULES, until: now + 1, limit: PAGE });
    const [next] = backend.rowsInOrder({ table: SCHEDULES, from: now + 1, limit: 1 });
    if (found.length !== DUE || next === undefined) throw new Error(`${found.length} schedules are due, not ${DUE}.`);
  }
  return ((performance.now() - started) * 1_000) / done;
}

/** Turns of many parked sessions, begun by schedules of one instant and asked for by the host. */
async function woken(run: BenchRun): Promise<BenchResult> {
  const ids = namesOf(WOKEN);
  const variants = { "journal off": false, "journal on": true } as const;
  const table: [string, number, number, number][] = [];
  const samples: Record<string, unknown> = {};
  for (const [name, journal] of Object.entries(variants))
    await withStore(ids, { sessionWorkers: 2, journal }, async (troupe) => {
      const sessions = await Promise.all(ids.map((id) => troupe.session(id)));
      const parkAll = () => eachOf(sessions, AT_ONCE, (session) => session.park());
      const rounds: { readonly direct: number; readonly woken: number }[] = [];
      for (let round = 0; round <= (run.quick ? 3 : 12); round++) {
        run.progress(`waking ${WOKEN} sessions, ${name}: round ${round}`);
        await parkAll();
        const direct = await perSecond(askAll(sessions));
        await parkAll();
        const woken = await wakeAll(troupe, sessions);
        // The first one compiles the code and fills the caches.
        if (round > 0) rounds.push({ direct, woken });
      }
      await checkTurns(troupe, 1 + (rounds.length + 1) * 2);
      const ratio = median(rounds.map((round) => round.woken / round.direct));
      const [woken, direct] = [median(rounds.map(({ woken }) => woken)), median(rounds.map(({ direct }) => direct))];
      table.push([name, woken, direct, ratio]);
      samples[name] = rounds;
    });
  return {
    ratios: { wake_vs_direct: Math.min(...table.map(([, , , ratio]) => ratio)) },
    samples: { wakes: samples },
    tables: [
      {
        title: `${WOKEN} parked sessions, one reference turn each, stored and synced`,
        columns: ["", "woken, turns/s", "asked directly, turns/s", "ratio"],
        rows: table,
      },
    ],
    notes: [
      "Asked directly: `session.turn()` of all of them at once. Woken: from the instant their schedules are due until the last turn is stored; each has its input stored with its schedule's row, and behind it its turn. The lower ratio of the two is judged.",
    ],
  };
}

async function askAll(sessions: readonly Session[]): Promise<void> {
  await Promise.all(sessions.map((session) => session.turn(INPUT)));
}

async function perSecond(work: Promise<unknown>): Promise<number> {
  const started = performance.now();
  await work;
  return (WOKEN * 1_000) / (performance.now() - started);
}

/** Turns a second from the instant they are due until the last is stored. */
async function wakeAll(troupe: Troupe, sessions: readonly Session[]): Promise<number> {
  const at = Date.now() + LEAD_MS;
  await eachOf(sessions, AT_ONCE, ({ id }) => troupe.schedules.put(id, { session: id, at, input: INPUT }));
  const { commits } = (await troupe.stats()).store;
  if (Date.now() >= at) throw new Error("The schedules were not made in time.");
  await sleep(at - Date.now());
  // Of each session its input with the schedule's row, and its turn.
  return perSecond(stored(troupe, commits + 2 * sessions.length));
}

/** Resolves when the store has written so many commits. */
async function stored(troupe: Troupe, commits: number): Promise<void> {
  while ((await troupe.stats()).store.commits < commits) await sleep(LOOK_MS);
}

async function checkTurns(troupe: Troupe, expected: number): Promise<void> {
  let counted = 0;
  for (let after: string | null | undefined; after !== null; ) {
    const page = await troupe.listSessions({ prefix: "s", limit: 500, ...(after !== undefined && { after }) });
    for (const { id, turns } of page.sessions)
      if (turns !== expected) throw new Error(`Session ${id} has had ${turns} turns, not ${expected}.`);
    counted += page.sessions.length;
    after = page.next;
  }
  if (counted !== WOKEN) throw new Error(`${counted} sessions are stored, not ${WOKEN}.`);
}

/** A runtime over a store in which these sessions have had a turn each, in a folder that is gone afterwards. */
async function withStore<T>(
  ids: readonly string[],
  given: TroupeOptions,
  use: (troupe: Troupe, folder: string) => Promise<T>,
): Promise<T> {
  const folder = await mkdtemp(join(tmpdir(), "troupe-bench-"));
  const options: TroupeOptions = {
    model: scriptedModel(SCRIPT),
    store: { path: folder },
    parkAfterMs: Number.POSITIVE_INFINITY,
    journal: false,
    ...given,
    plugins: [REFERENCE, ...(given.plugins ?? [])],
  };
  try {
    await storeCopies(folder, options, ids);
    await using troupe = await createTroupe(options);
    return await use(troupe, folder);
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
}

const daily = (session: string, at: number) => ({ session, at, input: INPUT });
const namesOf = (count: number) => Array.from({ length: count }, (_, n) => `s${n}`);
const sizeOf = (folder: string) => statSync(join(folder, "data.mdb")).size;
