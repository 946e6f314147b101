import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createTroupe, type Troupe, type TroupeStats } from "troupe";
import { eachOf } from "../measuring/held.js";
import { pause } from "../measuring/neighbours.js";
import { audit } from "./audit.js";
import { Chance } from "./chance.js";
import { COUNTER, DEEDS, optionsOf, SECRET, threadOf, VICTIMS } from "./options.js";
import { TurnRecord } from "./record.js";
import { ToldEvents } from "./told.js";

export interface ChaosPlan {
  readonly seed: number;
  readonly sessions: number;
  /** Threads are killed for so long, or so many: whichever ends first. */
  readonly seconds: number;
  readonly kills?: number;
  readonly killEveryMs: number;
  /** Turns under way at once. */
  readonly askers: number;
  readonly progress: (line: string) => void;
}

export interface ChaosReport {
  readonly violations: readonly string[];
  readonly finished: number;
  /** Why turns were refused, with how often. */
  readonly refused: Readonly<Record<string, number>>;
  readonly kills: Readonly<Record<string, number>>;
  /** Sessions in memory at the end; all others are in the store alone. */
  readonly resident: number;
  /** What the runtime told of, with how often. */
  readonly events: Readonly<Record<string, number>>;
}

/** How long a turn may take to end once nobody kills anything any more. */
const PATIENCE_MS = 60_000;
const SETUP_AT_ONCE = 64;
/** Parts of inputs, answers, arguments and settings: no event and no line of a log may have them. */
const UNSAID = [" first", " asker ", " stumbles ", "deed:", "You said", "Oslo", SECRET];

/** Turns on many sessions while one thread after the other is killed; then what was told is compared with the store. */
export async function chaos(plan: ChaosPlan): Promise<ChaosReport> {
  const { sessions: count, progress } = plan;
  const path = await mkdtemp(join(tmpdir(), "troupe-chaos-"));
  const options = optionsOf(path, count);
  const record = new TurnRecord();
  try {
    progress(`opening ${count} sessions`);
    const told = new ToldEvents();
    const troupe = await createTroupe({ ...options, onEvent: told.onEvent, log: told.log });
    let kills: Readonly<Record<string, number>> = {};
    let resident = 0;
    let stats: Pick<TroupeStats, "plugins" | "workers"> = { plugins: [], workers: [] };
    try {
      kills = await underFire(troupe, plan, record);
      progress("a turn loses its worker, one session ends threads, one hangs");
      await loseWorker(troupe, record, told);
      await offend(troupe, record, told);
      const now = await troupe.stats();
      stats = now;
      resident = accounts(now, record);
    } finally {
      progress("closing");
      await troupe.close();
    }
    record.violations.push(
      ...told.restarts(stats),
      ...told.resumes((session) => record.sessions.get(session)?.refusals ?? 0),
      ...told.breakers(),
      ...offences(told),
      ...told.found(UNSAID),
    );
    progress(`opening the store anew: ${record.finished} finished turns must be there`);
    await audit(options, record, `${COUNTER}.turns`);
    const { violations, finished, codes } = record;
    return { violations, finished, refused: Object.fromEntries(codes), kills, resident, events: told.counts };
  } finally {
    await rm(path, { recursive: true, force: true });
  }
}

async function underFire(
  troupe: Troupe,
  { seed, sessions: count, seconds, kills: most = Number.POSITIVE_INFINITY, killEveryMs, askers, progress }: ChaosPlan,
  record: TurnRecord,
): Promise<Readonly<Record<string, number>>> {
  const ids = Array.from({ length: count }, (_, n) => `session-${n}`);
  const ask = async (id: string, name: string, model?: string) => {
    const turn = async () => {
      const session = await troupe.session(id);
      const { outcome } = await session.turn(name, { key: name, ...(model !== undefined && { model }) });
      if (outcome.type === "finished") return outcome.text;
      const code = outcome.type === "stopped" ? outcome.code : outcome.type;
      throw Object.assign(new Error("The turn did not finish."), { code });
    };
    // A caller that was refused may ask again: under the same key it is the same turn, and runs once.
    if (!(await record.ask(id, name, turn))) await record.ask(id, name, turn);
  };
  await eachOf(ids, SETUP_AT_ONCE, (id) => ask(id, `${id} first`));

  const chance = new Chance(seed);
  // Askers have a chance of their own: whatever order their turns end in, the same threads are killed.
  const askersChance = new Chance(~seed);
  const kills: Record<string, number> = {};
  const falls: Promise<void>[] = [];
  let isOver = false;
  const loops = Array.from({ length: askers }, async (_, asker) => {
    for (let n = 0; !isOver; n++) {
      const id = ids[askersChance.below(count)] as string;
      await ask(id, `${id} asker ${asker} turn ${n}`);
    }
  });
  const until = performance.now() + seconds * 1000;
  for (let n = 0; n < most && performance.now() < until; n++) {
    await pause(killEveryMs);
    const victim = chance.of(VICTIMS);
    kills[victim] = (kills[victim] ?? 0) + 1;
    if (victim === "pool") {
      const id = ids[chance.below(count)] as string;
      falls.push(ask(id, `${id} stumbles ${n}`, "falling"));
    } else await troupe.kill(threadOf(victim, chance));
    progress(`${n + 1} threads killed, ${record.finished} turns finished, ${record.violations.length} violations`);
  }
  isOver = true;
  const ended = Promise.all([...loops, ...falls]).then(() => true);
  const patience = new AbortController();
  const all = await Promise.race([ended, pause(PATIENCE_MS, patience.signal).then(() => false)]);
  patience.abort();
  if (!all) for (const name of record.open) record.violations.push(`The turn ${name} was told nothing.`);
  return kills;
}

/** A call that the machine was too slow for counts for nothing: so often a session tries. */
const MOST_TRIES = 12;
/** Sessions that are answered: on every session worker there is one. */
const ANSWERING = 8;

/**
 * The workers are killed while a tool holds a turn, which goes on. Whether a death among many meets a turn that has come so
 * far is chance.
 */
async function loseWorker(troupe: Troupe, record: TurnRecord, told: ToldEvents): Promise<void> {
  for (let n = 0; n < MOST_TRIES && told.about("turn_resumed", "held").length === 0; n++)
    await record.ask("held", `held ${n}`, async () => {
      const turn = (await troupe.session("held")).turn(`held ${n}`, { model: "holding" });
      for await (const { type } of turn) {
        if (type !== "tool_call_started") continue;
        await Promise.all([0, 1].map((sessionWorker) => troupe.kill({ sessionWorker })));
        break;
      }
      return (await turn).text;
    });
}

/** One session ends its plugin's thread again and again, another lets its hook hang; then the hook answers others again. */
async function offend(troupe: Troupe, record: TurnRecord, told: ToldEvents): Promise<void> {
  const ask = (id: string, name: string) =>
    record.ask(id, name, async () => (await (await troupe.session(id)).turn(name)).text);
  const untilTold = async (isTold: () => boolean, act: (n: number) => Promise<unknown>) => {
    for (let n = 0; n < MOST_TRIES && !isTold(); n++) await act(n);
  };
  const answer = (n: number) =>
    Promise.all(Array.from({ length: ANSWERING }, (_, which) => ask(`answers-${which}`, `hello ${n}`)));
  await untilTold(
    () => told.about("session_refused", "ends").length > 0,
    (n) => ask("ends", `deed:exit ${n}`),
  );
  // Deadlines that others missed before are no part of it.
  await answer(MOST_TRIES);
  await untilTold(
    () => told.about("breaker_opened", "hangs").length > 0,
    (n) => ask("hangs", `deed:never ${n}`),
  );
  await untilTold(() => closedBehind(told).length > 0, answer);
}

/** What closed the breaker that the hanging session had opened. */
function closedBehind(told: ToldEvents): readonly unknown[] {
  const [opened] = told.about("breaker_opened", "hangs");
  if (opened === undefined) return [];
  return told
    .of("breaker_closed")
    .filter(({ plugin, thread, at }) => plugin === DEEDS && thread === opened.thread && at >= opened.at);
}

/** What the two sessions did is told once, with their names. */
function offences(told: ToldEvents): string[] {
  const times = {
    "ends, as quarantined": told.about("session_quarantined", "ends").length,
    "ends, as refused": told.about("session_refused", "ends").length,
    "hangs, as refused by a breaker": told.about("breaker_opened", "hangs").length,
    "hangs, as no longer refused": closedBehind(told).length,
  };
  return Object.entries(times)
    .filter(([, count]) => count !== 1)
    .map(([what, count]) => `The session ${what}, was told ${count} times.`);
}

/** The runtime's own accounts must be even. */
function accounts({ turns, sessions }: TroupeStats, record: TurnRecord): number {
  const { asked, finished, refused } = turns;
  if (asked !== finished + refused)
    record.violations.push(`Of ${asked} turns asked for ${finished} finished and ${refused} were refused.`);
  return sessions.resident;
}
