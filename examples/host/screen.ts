import type { Troupe, TroupeStats } from "troupe";
import type { RunOptions } from "./args.js";
import type { Load, Tally } from "./load.js";

/** What is shown at one moment. */
interface Moment {
  readonly options: RunOptions;
  readonly elapsedMs: number;
  readonly turnsPerSecond: number;
  readonly inFlight: number;
  readonly tally: Tally;
  readonly stats: TroupeStats;
}

const TABLE_MS = 300;
const LINE_MS = 1_000;
const MOST_PROBLEMS = 20;
const HIDE_CURSOR = "\x1b[?25l";
export const SHOW_CURSOR = "\x1b[?25h";

/** Shows the run while it lasts: a table redrawn in place in a terminal, else a line every second. */
export class Screen {
  readonly #troupe: Troupe;
  readonly #load: Load;
  readonly #options: RunOptions;
  readonly #started = performance.now();
  readonly #timer: NodeJS.Timeout;
  #last: { atMs: number; finished: number };
  #showing: Promise<void> | undefined;
  #drawnLines = 0;

  constructor(troupe: Troupe, load: Load, options: RunOptions) {
    this.#troupe = troupe;
    this.#load = load;
    this.#options = options;
    this.#last = { atMs: this.#started, finished: load.tally.finished };
    if (process.stdout.isTTY) process.stdout.write(HIDE_CURSOR);
    this.#timer = setInterval(() => void this.#show(), process.stdout.isTTY ? TABLE_MS : LINE_MS);
  }

  get elapsedMs(): number {
    return performance.now() - this.#started;
  }

  /** Draws the last state and leaves it there. */
  async stop(): Promise<void> {
    clearInterval(this.#timer);
    await this.#showing;
    if (!process.stdout.isTTY) return;
    await this.#show();
    process.stdout.write(SHOW_CURSOR);
  }

  /** One at a time: a runtime that is slow to answer must not find a queue of questions. */
  #show(): Promise<void> {
    this.#showing ??= this.#draw().finally(() => {
      this.#showing = undefined;
    });
    return this.#showing;
  }

  async #draw(): Promise<void> {
    const stats = await this.#troupe.stats();
    const moment = this.#moment(stats);
    const { stdout } = process;
    if (!stdout.isTTY) {
      stdout.write(`${lineOf(moment)}\n`);
      return;
    }
    // What does not fit would scroll, and then the cursor could not find its way back.
    const lines = tableOf(moment).slice(0, Math.max(1, stdout.rows - 1));
    const up = this.#drawnLines === 0 ? "" : `\x1b[${this.#drawnLines}A`;
    stdout.write(`${up}\x1b[J${lines.map((line) => `${line.slice(0, stdout.columns)}\n`).join("")}`);
    this.#drawnLines = lines.length;
  }

  #moment(stats: TroupeStats): Moment {
    const { tally, inFlight } = this.#load;
    const atMs = performance.now();
    const turnsPerSecond = ((tally.finished - this.#last.finished) * 1_000) / Math.max(1, atMs - this.#last.atMs);
    this.#last = { atMs, finished: tally.finished };
    return { options: this.#options, elapsedMs: this.elapsedMs, turnsPerSecond, inFlight, tally, stats };
  }
}

function lineOf({ elapsedMs, turnsPerSecond, inFlight, tally, stats }: Moment): string {
  return [
    seconds(elapsedMs),
    `${whole(turnsPerSecond)} turns/s`,
    `asked ${whole(tally.asked)}`,
    `finished ${whole(tally.finished)}`,
    `refused ${whole(tally.refused)}`,
    `in flight ${whole(inFlight)}`,
    `forks ${whole(tally.forked)}`,
    `restarts ${stats.plugins.map(({ id, restarts }) => `${id} ${restarts}`).join(" ")}`,
    `sessions ${stats.workers.map(({ sessions }) => whole(sessions)).join(" + ")}`,
  ].join(", ");
}

function tableOf(moment: Moment): string[] {
  const { options, elapsedMs, turnsPerSecond, inFlight, tally, stats } = moment;
  return [
    `Troupe hosts ${whole(options.sessions)} sessions: ${seconds(elapsedMs)} of ${options.seconds} s`,
    "",
    `  turns/s ${whole(turnsPerSecond)}   asked ${whole(tally.asked)}   finished ${whole(tally.finished)}   refused ${whole(tally.refused)}   in flight ${whole(inFlight)}`,
    `  tool calls ${whole(tally.toolCalls)}   denied ${whole(tally.denied)}   forks ${whole(tally.forked)}`,
    "",
    ...columns([
      ["session worker", "thread", "sessions", "restarts"],
      ...stats.workers.map(({ index, threadId, sessions, restarts }) => [
        String(index),
        String(threadId),
        whole(sessions),
        String(restarts),
      ]),
    ]),
    "",
    ...columns([
      ["plugin", "thread", "restarts"],
      ...stats.plugins.map(({ id, threadId, restarts }) => [id, String(threadId), String(restarts)]),
    ]),
    "",
    ...columns([["hook", "plugin", "calls", "p50 ms", "p99 ms"], ...hookRows(stats)]),
    "",
    ...byCode(tally),
  ];
}

/** What the run came to. The counts were checked: `problems` says where they do not add up. */
export function summaryOf(run: {
  readonly options: RunOptions;
  readonly load: Load;
  readonly stats: TroupeStats;
  readonly elapsedMs: number;
  readonly problems: readonly string[];
}): string {
  const { options, load, stats, elapsedMs, problems } = run;
  const { tally, inFlight } = load;
  const perSecond = (tally.finished * 1_000) / Math.max(1, elapsedMs);
  const replaced = [...stats.plugins, ...stats.workers].reduce((sum, { restarts }) => sum + restarts, 0);
  const verdict =
    problems.length === 0
      ? ["Counts checked: no turn was lost and every session holds exactly the turns it finished."]
      : ["COUNTS ARE WRONG:", ...problems.slice(0, MOST_PROBLEMS).map((problem) => `  ${problem}`)];
  return [
    "",
    `Hosted ${whole(options.sessions)} sessions for ${seconds(elapsedMs)}: ${whole(perSecond)} turns/s, ${whole(tally.forked)} forks, ${whole(replaced)} threads replaced.`,
    `Turns asked ${whole(tally.asked)} = finished ${whole(tally.finished)} + refused ${whole(tally.refused)} + lost ${whole(inFlight)}`,
    ...byCode(tally),
    ...meaning(tally),
    ...verdict,
    ...(problems.length > MOST_PROBLEMS ? [`  and ${problems.length - MOST_PROBLEMS} more`] : []),
    "",
  ].join("\n");
}

/** Which of the failures this run was made to have. */
function meaning({ refusedBy, stopped, forksRefusedBy, unmeant }: Tally): string[] {
  const sum = (counts: ReadonlyMap<string, number>) => [...counts.values()].reduce((total, n) => total + n, 0);
  const failed = sum(refusedBy) + sum(stopped) + sum(forksRefusedBy);
  const meant = failed - sum(unmeant);
  return [
    `Meant: ${whole(meant)} of these ${whole(failed)} name the plugin "chaos", which throws, hangs, blocks and crashes its thread on purpose; every other turn was answered.`,
    unmeant.size === 0 ? "Not meant: none." : `NOT MEANT, look into these: ${countsOf(unmeant)}`,
  ];
}

/** Why turns and forks went wrong, by code. */
function byCode({ refusedBy, stopped, forksRefusedBy }: Tally): string[] {
  return [
    `  refused: ${countsOf(refusedBy)}`,
    `  finished without an answer: ${countsOf(stopped)}`,
    `  forks refused: ${countsOf(forksRefusedBy)}`,
  ];
}

function whole(value: number): string {
  return Math.round(value).toLocaleString("en-US");
}

function seconds(ms: number): string {
  return `${(ms / 1_000).toFixed(1)} s`;
}

function countsOf(counts: ReadonlyMap<string, number>): string {
  if (counts.size === 0) return "none";
  return [...counts].map(([code, count]) => `${code} ${whole(count)}`).join(", ");
}

/** Statistics name hooks `plugin_hook.<kind>.<plugin>` and count in microseconds. */
function hookRows({ hooks }: TroupeStats): string[][] {
  return Object.entries(hooks).flatMap(([name, { count, p50, p99 }]) => {
    const [, kind, plugin] = /^plugin_hook\.([^.]+)\.(.+)$/.exec(name) ?? [];
    if (kind === undefined || plugin === undefined) return [];
    return [[kind, plugin, whole(count), (p50 / 1_000).toFixed(2), (p99 / 1_000).toFixed(2)]];
  });
}

/** Names to the left, figures to the right, each column as wide as its widest cell. */
function columns(rows: readonly (readonly string[])[]): string[] {
  const widths = (rows[0] ?? []).map((_, column) => Math.max(...rows.map((row) => (row[column] ?? "").length)));
  const isFigure = (column: number) => rows.slice(1).every((row) => /^-?[\d,.]+$/.test(row[column] ?? ""));
  const figures = widths.map((_, column) => column > 0 && isFigure(column));
  return rows.map((row) => {
    const cells = row.map((cell, column) =>
      figures[column] ? cell.padStart(widths[column] ?? 0) : cell.padEnd(widths[column] ?? 0),
    );
    return `  ${cells.join("   ").trimEnd()}`;
  });
}
