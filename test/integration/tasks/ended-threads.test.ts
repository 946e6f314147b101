import { existsSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import type { Session, Troupe, TroupeOptions } from "troupe";
import { expect, test } from "vitest";
import { heardBy } from "../../support/agents.js";
import { told } from "../../support/asking.js";
import { listening } from "../../support/listening.js";
import { fixture, plugin, refusalOf, startTroupe, tempFolder, until } from "../../support/runtime.js";
import { Watching } from "../../support/watching.js";

// A process or a session's worker that is killed behind each write is in test/integration/crashes/background-seams.test.ts, and
// so is a plugin's thread that is killed from outside; here the thread of a plugin ends by itself, in the plugin's own code.

const DONE = "The task test.ends:k is done. Its result:\ndone";

class Ending {
  readonly troupe: Troupe;
  readonly session: Session;
  readonly #folder: string;

  private constructor(troupe: Troupe, session: Session, folder: string) {
    this.troupe = troupe;
    this.session = session;
    this.#folder = folder;
  }

  /** With a plugin whose thread ends at these places, once at each. */
  static async at(places: readonly string[], query = "", options: TroupeOptions = {}): Promise<Ending> {
    const folder = await tempFolder();
    for (const place of places) writeFileSync(join(folder, place), "");
    const module = new URL(`${plugin("ends-threads")}?folder=${encodeURIComponent(folder)}${query}`);
    const troupe = await startTroupe({
      store: { path: join(folder, "store") },
      sessionWorkers: 1,
      model: fixture("models/told.mjs"),
      ...options,
      plugins: [{ module, permissions: "all", blockedMs: 600_000 }, ...(options.plugins ?? [])],
    });
    return new Ending(troupe, await troupe.session("s"), folder);
  }

  arm(place: string): void {
    writeFileSync(join(this.#folder, place), "");
  }

  /** Its thread has ended there. */
  hasEnded(place: string): boolean {
    return !existsSync(join(this.#folder, place));
  }

  /** What its jobs have done. */
  done(): readonly string[] {
    const file = join(this.#folder, "log");
    return existsSync(file) ? readFileSync(file, "utf8").split("\n").filter(Boolean) : [];
  }

  ask(method: string, ...args: readonly unknown[]) {
    return this.session.command("test.ends.ask", { method, args } as never);
  }

  begin(job = "works") {
    return this.session.command("test.ends.begin", { job });
  }

  /** Has heard these and nothing else, also behind a turn that would bring what waits. */
  async heard(...texts: readonly string[]): Promise<void> {
    await until("it is told", async () => (await heardBy(this.session)).length >= texts.length);
    await this.session.turn("and?");
    expect(await heardBy(this.session)).toEqual([...texts, "and?"]);
    expect(await this.session.inputs()).toEqual([]);
  }
}

/** What the steps of a job that loses its thread there have done in the end. */
const SEAMS: Readonly<Record<string, readonly string[]>> = {
  "as it begins": ["one", "two"],
  "in a step": ["one", "two"],
  // Done, and not stored: this is the one step that is done again.
  "behind what its step does": ["one", "one", "two"],
  "behind a step": ["one", "two"],
  "behind its sleep": ["one", "two"],
  "before it returns": ["one", "two"],
};

test.each(["works", "pooled"].flatMap((job) => Object.keys(SEAMS).map((place) => [job, place] as const)))(
  "a job (%s) whose thread ends %s does no finished step again, comes to its end, and its session is told once",
  async (job, place) => {
    const ending = await Ending.at([place]);
    await ending.begin(job);
    await ending.heard(DONE);
    expect([ending.hasEnded(place), ending.done()]).toEqual([true, SEAMS[place]]);
    expect(await ending.session.tasks()).toMatchObject([{ id: "test.ends:k", state: "completed", result: "done" }]);
  },
);

test.each(["works", "pooled"])(
  "a job (%s) whose thread ends at every one of its places does each step once but for the one that was not stored",
  async (job) => {
    const ending = await Ending.at(Object.keys(SEAMS));
    await ending.begin(job);
    await ending.heard(DONE);
    expect(ending.done()).toEqual(["one", "one", "two"]);
  },
);

const SPAWNING = ["before a task is asked for", "while a task is asked for", "behind the task"];

test.each(SPAWNING)(
  "a command whose thread ends %s is refused, and when it is given again there is one task, done once",
  async (place) => {
    const ending = await Ending.at([place]);
    expect((await refusalOf(ending.begin())).code).toBe("worker_lost");
    await ending.begin();
    await ending.heard(DONE);
    expect(ending.done()).toEqual(["one", "two"]);
    expect(await ending.session.tasks()).toHaveLength(1);
  },
);

test.each(SPAWNING)(
  "a tool whose thread ends %s has failed, and when the model calls it again there is one task, done and told once",
  async (place) => {
    const ending = await Ending.at([place]);
    const call = { call: "begin", args: { job: "works" } };
    const asked = told(call, call, { say: "done" });
    const { toolCalls } = await ending.session.turn(asked);
    expect(toolCalls.map(({ output }) => output)).toMatchObject([
      { status: "failure", failure: { code: "tool_worker_lost" } },
      { status: "success", value: { task: "test.ends:k" } },
    ]);
    await ending.heard(asked, DONE);
    expect(ending.done()).toEqual(["one", "two"]);
    expect(await ending.session.tasks()).toHaveLength(1);
  },
);

test.each(["works", "pooled"])(
  "a job (%s) whose thread ends as it is cancelled stays cancelled, is not run again, and its session is told nothing",
  async (job) => {
    const ending = await Ending.at(["as it is cancelled"], "&waits");
    await ending.begin(job);
    await until("it waits", () => ending.done().includes("waits"));
    expect(await ending.session.cancelTask("test.ends:k")).toMatchObject({ state: "cancelled" });
    await until("its thread has ended", () => ending.hasEnded("as it is cancelled"));
    await ending.heard();
    expect(ending.done()).toEqual(["one", "two", "waits"]);
  },
);

test.each(["as its owner is told", "behind its owner was told"])(
  "a job that tells the owner of a cancelled task and loses its thread %s tells it once",
  async (place) => {
    const ending = await Ending.at([place]);
    await ending.ask("registerBackgroundTask", { key: "k", onCancel: "told" });
    await ending.session.cancelTask("test.ends:k");
    await until("its thread has ended", () => ending.hasEnded(place));
    await ending.ask("awaitHiddenTasks");
    await ending.heard("test.ends:k");
  },
);

const BROUGHT: Readonly<Record<string, readonly [bring: (ending: Ending) => Promise<unknown>, heard: string]>> = {
  "a task's result": [(ending) => ending.begin(), DONE],
  "a schedule's run": [
    ({ troupe }) => troupe.schedules.put("k", { session: "s", at: Date.now(), input: "scheduled" }),
    "scheduled",
  ],
  "an event": [
    async ({ troupe, session }) => {
      await session.subscribe("door.knocked");
      return troupe.trigger("door.knocked", {});
    },
    "The event door.knocked came.\n{}",
  ],
  "a monitor's update": [
    (ending) => ending.ask("startMonitor", { id: "m", argv: ["sh", "-c", "echo up; sleep 1000"], deliver: "turn" }),
    'Monitor "m":\nup',
  ],
};

test.each(Object.keys(BROUGHT))(
  "%s, which a hook of the session looks at, is told once when that hook's thread ends, before it waits and as its turn begins",
  async (what) => {
    const [bring, heard] = BROUGHT[what] as (typeof BROUGHT)[string];
    const { onEvent, first } = listening();
    const ending = await Ending.at(["as an input comes"], "", { onEvent });
    await ending.session.turn("hello");
    ending.arm("as the turn begins");
    await bring(ending);
    // Tried again until it waits. A turn that a hook refuses has taken nothing: what it began with is the next one's.
    expect(await first("turn_refused")).toMatchObject({ code: "plugin_prepare_turn", background: true });
    expect(["as an input comes", "as the turn begins"].map((place) => ending.hasEnded(place))).toEqual([true, true]);
    expect((await ending.session.inputs()).map(({ text }) => text)).toEqual([heard]);
    await ending.session.turn("and?");
    await until("it is told", async () => (await ending.session.inputs()).length === 0);
    await until("both have ended", async () => (await ending.session.info()).turns === 3);
    expect((await heardBy(ending.session)).sort()).toEqual(["and?", "hello", heard].sort());
  },
);

test("a payload whose check ends the plugin's thread is no event yet, and sent again under its key it is told once", async () => {
  const ending = await Ending.at(["as a payload is checked"]);
  await ending.session.subscribe("door.knocked");
  const knock = () => ending.troupe.trigger("door.knocked", {}, { key: "k" });
  expect((await refusalOf(knock())).code).toBe("worker_lost");
  expect([await knock(), await knock()]).toEqual([
    { matched: 1, replayed: false },
    { matched: 1, replayed: true },
  ]);
  await ending.heard("The event door.knocked came.\n{}");
});

test("a tool that a monitor watches and that ends its thread is run again, and what it answers is told once", async () => {
  const ending = await Ending.at(["in the tool"], "", { plugins: [{ module: plugin("watches") }] });
  const watching = new Watching(ending.session);
  await watching.start({ id: "m", tool: "gauge", everyMs: 100, debounceMs: 5, deliver: "turn" });
  await ending.heard('Monitor "m":\nup');
  expect(ending.hasEnded("in the tool")).toBe(true);
  expect(await watching.status("m")).toMatchObject({ state: "running", starts: 1, told: 1 });
});
