import { readFileSync } from "node:fs";
import type { Session, Troupe } from "troupe";
import { expect, test } from "vitest";
import { heardBy } from "../../support/agents.js";
import { KilledAt, type Left, pidsIn } from "../../support/background-seams.js";
import { isAlive } from "../../support/pids.js";
import { until } from "../../support/runtime.js";
import { Watching } from "../../support/watching.js";

/**
 * What goes on beside turns is written by the main thread, write by write. A process is killed right behind each of them,
 * before anybody has heard that it was made: these are the seams of spawn, step, sleep, wake, complete, deliver, cancel and
 * fire. A turn's own seams are in crash-matrix.test.ts.
 */
interface Seams {
  /** What the store has, behind each of the writes in their order. */
  readonly names: readonly string[];
  readonly nameOf: (left: Left) => string;
  /** Turns are stored meanwhile, so that the write a process was killed behind may have been one of theirs. */
  readonly beside?: true;
  /** What the next process makes of it; the second one, after that was closed, finds the same. */
  readonly check: (troupe: Troupe, killed: KilledAt, left: Left) => Promise<void>;
  /** What a session has heard in the end, once. */
  readonly heard: (left: Left) => Readonly<Record<string, readonly string[]>>;
}

const turnsOf = async (session: Session) => (await session.info()).turns;

function nameOfTask({ tasks: [task] }: Left): string {
  if (task === undefined) return "no task";
  const { state, run, steps, wake, untold } = task;
  if (state === "running") return run === 0 ? "running" : `run ${run}, steps ${steps}`;
  return wake === null ? `${state}${untold ? ", open" : ""}` : "asleep";
}

const lines = (file: string) => readFileSync(file, "utf8").split("\n").filter(Boolean);
const statesOf = async (session: Session) => (await session.tasks()).map(({ id, state }) => [id, state]);

/** A job, on a thread of its plugin's or of a pool. */
const JOB: Seams = {
  names: [
    "run 1, steps 0",
    "run 1, steps 1",
    "asleep",
    "run 2, steps 2",
    "run 2, steps 3",
    "completed, open",
    "completed",
  ],
  nameOf: nameOfTask,
  async check(troupe, killed) {
    const session = await troupe.session("s");
    await until("it is told", async () => (await turnsOf(session)) === 1);
    expect(await statesOf(session)).toEqual([["test.works-on:k", "completed"]]);
    // Killed right behind its step's write, a job never does a step twice.
    expect(lines(killed.path("log"))).toEqual(["one", "two"]);
  },
  heard: () => ({ s: ['The task test.works-on:k is done. Its result:\n["one","two"]'] }),
};

const SCENARIOS: Readonly<Record<string, Seams>> = {
  task: JOB,
  pooled: JOB,
  completed: {
    names: ["completed, open", "completed"],
    nameOf: nameOfTask,
    async check(troupe) {
      const session = await troupe.session("s");
      await until("it is told", async () => (await turnsOf(session)) === 1);
      expect(await statesOf(session)).toEqual([["test.works-on:k", "completed"]]);
    },
    heard: () => ({ s: ["The task test.works-on:k is done. Its result:\n1"] }),
  },
  cancelled: {
    names: ["cancelled, its owner's job is running", "cancelled, its owner's job is completed"],
    nameOf: ({ tasks }) => {
      const [job, task] = ["hidden", "background"].map((each) => tasks.find(({ kind }) => kind === each));
      return `${task?.state}, its owner's job is ${job?.state}`;
    },
    async check(troupe) {
      const session = await troupe.session("told");
      await until("its owner was told", async () => (await turnsOf(session)) === 1);
      expect(await statesOf(session)).toEqual([["test.works-on:k", "cancelled"]]);
    },
    heard: () => ({ told: ["test.works-on:k"] }),
  },
  monitor: {
    names: [
      "no task, watched",
      "running, watched",
      "cancelled, open, watched",
      "cancelled, open, ended",
      "cancelled, ended",
    ],
    nameOf: (left) => `${nameOfTask(left)}, ${left.monitors[0]?.end === null ? "watched" : "ended"}`,
    async check(troupe, killed, { tasks: [task] }) {
      const s = await Watching.in(troupe, "s");
      const isCancelled = task?.state === "cancelled";
      if (isCancelled) await until("it has ended", async () => (await s.status("run"))?.state === "ended");
      else {
        const before = killed.pids.length;
        await until("it runs again", () => pidsIn(killed.path("monitor")).length > before);
        await s.session.cancelTask("monitor:test.watches/run");
      }
      expect(pidsIn(killed.path("monitor")).length - killed.pids.length).toBe(isCancelled ? 0 : 1);
      expect(pidsIn(killed.path("monitor")).filter(isAlive)).toEqual([]);
      expect(await statesOf(s.session)).toEqual([["monitor:test.watches/run", "cancelled"]]);
    },
    heard: () => ({}),
  },
  agent: {
    names: ["cancelled, open", "cancelled"],
    nameOf: nameOfTask,
    async check(troupe, killed) {
      const session = await troupe.session("s");
      await until("nothing of the agent waits", async () => (await troupe.pending()).calls.length === 0);
      const [agent] = (await troupe.listSessions({ prefix: "s/agent:" })).sessions;
      const id = agent?.id ?? "";
      await until("its turn has ended", async () => (await (await troupe.session(id)).view()).running === null);
      // It was asked once, and that is all.
      expect(lines(killed.path("model")).filter((line) => line.startsWith(id))).toEqual([`${id} 0`]);
      expect((await session.tasks()).map(({ state }) => state)).toEqual(["cancelled"]);
      expect(await turnsOf(session)).toBe(1);
    },
    heard: () => ({}),
  },
  event: {
    names: ["stored", "told 1", "told 2", "told 3", "told to all"],
    nameOf: ({ events: [event] }) =>
      event?.isDone ? "told to all" : event?.matched === 0 ? "stored" : `told ${event?.matched}`,
    beside: true,
    async check(troupe) {
      for (const id of ["s", "t", "u"]) {
        const session = await troupe.session(id);
        await until(`${id} is told`, async () => (await turnsOf(session)) === 1);
      }
      // Sent again by whoever does not know whether it came.
      expect(await troupe.trigger("door.opened", {}, { key: "once" })).toMatchObject({ replayed: true });
    },
    heard: () => Object.fromEntries(["s", "t", "u"].map((id) => [id, ["The event door.opened came.\n{}"]])),
  },
  schedule: {
    names: ["own 0", "own 1", "fresh 0, own 1", "fresh 1, own 1"],
    nameOf: ({ schedules }) => schedules.map(({ key, runs }) => `${key} ${runs}`).join(", "),
    async check(troupe, _, { schedules }) {
      for (const { key } of schedules) {
        const session = await troupe.session(key === "own" ? "s" : "n/1");
        await until(`${key} ran`, async () => (await turnsOf(session)) === 1);
      }
      const { schedules: now } = await troupe.schedules.list();
      expect(now.map(({ key, runs, state }) => [key, runs, state])).toEqual(
        schedules.map(({ key }) => [key, 1, "ended"]),
      );
    },
    heard: ({ schedules }) => ({ s: ["scheduled"], ...(schedules.length > 1 && { "n/1": ["scheduled"] }) }),
  },
};

const LONG = 240_000;

test.each(Object.keys(SCENARIOS))(
  "a process killed behind any write of its %s leaves no process, and what was stored comes to its end once, over two more processes",
  async (scenario) => {
    const { names, nameOf, check, heard, beside } = SCENARIOS[scenario] as Seams;
    for (const [index, name] of names.entries()) {
      const killed = await KilledAt.write(index + 1, scenario);
      expect(killed.writes, name).toBeUndefined();
      await until(`${name}: its processes have ended`, () => !killed.pids.concat(killed.others).some(isAlive));
      const left = killed.left();
      expect(beside ? names.slice(Math.max(0, index - 1), index + 1) : [name]).toContain(nameOf(left));
      const first = await killed.next();
      await check(first, killed, left);
      const begun = pidsIn(killed.path("monitor")).length;
      await first.close();
      const second = await killed.next();
      for (const [id, said] of Object.entries(heard(left))) {
        const session = await second.session(id);
        await session.turn("and?");
        expect(await heardBy(session), `${name}: ${id}`).toEqual([...said, "and?"]);
      }
      expect(pidsIn(killed.path("monitor"))).toHaveLength(begun);
      await second.close();
    }
    expect((await KilledAt.write(names.length + 1, scenario)).writes).toBe(names.length);
  },
  LONG,
);

const VICTIMS = {
  worker: "A session worker",
  plugins: "Every thread of the plugins, of those in pools too,",
} as const;

test.each(
  Object.keys(SCENARIOS).flatMap((scenario) =>
    (["worker", "plugins"] as const).flatMap((victim) =>
      ([0, 1] as const).map((parity) => [VICTIMS[victim], scenario, parity, victim] as const),
    ),
  ),
)(
  "%s that is killed at every second write of its %s (%d) loses nothing of it, and has nothing twice",
  async (_, scenario, parity, victim) => {
    const { check, heard } = SCENARIOS[scenario] as Seams;
    const killed = await KilledAt.write(`${victim} ${parity}`, scenario);
    expect(killed.writes).toBeGreaterThan(0);
    await until("its processes have ended", () => !killed.pids.concat(killed.others).some(isAlive));
    const left = killed.left();
    const troupe = await killed.next();
    await check(troupe, killed, left);
    for (const [id, said] of Object.entries(heard(left))) {
      const session = await troupe.session(id);
      await session.turn("and?");
      expect(await heardBy(session), id).toEqual([...said, "and?"]);
    }
  },
  LONG,
);
