import { closeSync, fdatasyncSync, mkdtempSync, openSync, rmSync, writeSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { Session, Troupe } from "troupe";
import { withTroupe } from "./measuring/long-session.js";
import type { Bench } from "./measuring/report.js";
import { type Contender, compare, middle, takeRounds } from "./measuring/sampling.js";

const AT_ONCE = [1, 16, 64] as const;
/** What one commit adds to a history. */
const TEXT = "Forty-two messages were read and one of them was answered. ".repeat(4);
/** Head and segment of such a commit, about; what the bare loop appends. */
const BYTES = 768;

type Who = "bare" | `sessions-${(typeof AT_ONCE)[number]}`;

export const commits: Bench = {
  name: "commits",
  question: "How many synced commits a second, beside a bare append and fdatasync on the same disk?",
  bars: AT_ONCE.map((count) => ({
    id: `commits_${count}_vs_fdatasync`,
    says: `commits/s of ${count === 1 ? "one session" : `${count} sessions at once`} over bare fdatasyncs/s; more is better`,
  })),
  run: (run) =>
    withTroupe({ sessionWorkers: 2, parkAfterMs: Number.POSITIVE_INFINITY }, async (troupe) => {
      const sessions = await Promise.all(
        Array.from({ length: Math.max(...AT_ONCE) }, (_, n) => troupe.session(`s${n}`)),
      );
      using file = bareFile();
      const contenders: Contender<Who>[] = [
        { name: "bare", measure: async (ms) => appendBare(file.descriptor, ms) },
        ...AT_ONCE.map((count) => ({
          name: `sessions-${count}` as const,
          measure: (ms: number) => commitAll(sessions.slice(0, count), ms),
        })),
      ];
      const before = await troupe.stats();
      const rounds = await takeRounds(contenders, {
        budgetMs: run.quick ? 16_000 : 60_000,
        slotMs: 500,
        least: 5,
        onRound: (count) => run.progress(`round ${count}`),
      });
      const perSync = await commitsPerSync(troupe, before);
      const ratios: Record<string, number> = {};
      for (const count of AT_ONCE) {
        const { middle: ratio } = compare(rounds, (round) => round.bare / round[`sessions-${count}`]);
        ratios[`commits_${count}_vs_fdatasync`] = ratio;
      }
      const names = contenders.map(({ name }) => name);
      const perSecond = Object.fromEntries(names.map((name) => [name, 1e6 / middle(rounds, name)]));
      return {
        ratios,
        samples: { rounds: rounds.length, perSecond, perSync },
        tables: [
          {
            title: "Synced commits",
            columns: ["who", "per second", "us each"],
            rows: names.map((name) => [name, perSecond[name] ?? 0, middle(rounds, name)]),
          },
        ],
        notes: [
          `A commit is one appended message: head and segment, answered when LMDB has synced it. The bare loop appends ${BYTES} bytes and calls fdatasync, from one thread.`,
          `Commits that arrive together share a sync: ${perSync.toFixed(1)} per transaction over the whole run. ${rounds.length} rounds, compared round by round.`,
        ],
      };
    }),
};

/** Each session appends one message after another until the time is up; microseconds per commit of all together. */
async function commitAll(sessions: readonly Session[], ms: number): Promise<number> {
  let done = 0;
  const started = performance.now();
  const until = started + ms;
  await Promise.all(
    sessions.map(async (session) => {
      do {
        await session.append({ nodes: [{ kind: "message", message: { role: "user", text: TEXT } }] });
        done++;
      } while (performance.now() < until);
    }),
  );
  return ((performance.now() - started) * 1000) / done;
}

function appendBare(descriptor: number, ms: number): number {
  const record = Buffer.alloc(BYTES, 1);
  let done = 0;
  const started = performance.now();
  do {
    writeSync(descriptor, record);
    fdatasyncSync(descriptor);
    done++;
  } while (performance.now() < started + ms);
  return ((performance.now() - started) * 1000) / done;
}

function bareFile(): Disposable & { readonly descriptor: number } {
  const folder = mkdtempSync(join(tmpdir(), "troupe-bench-"));
  const descriptor = openSync(join(folder, "appended"), "a");
  return {
    descriptor,
    [Symbol.dispose]() {
      closeSync(descriptor);
      rmSync(folder, { recursive: true, force: true });
    },
  };
}

async function commitsPerSync(troupe: Troupe, before: Awaited<ReturnType<Troupe["stats"]>>): Promise<number> {
  const { store } = await troupe.stats();
  return (store.commits - before.store.commits) / (store.transactions - before.store.transactions);
}
