import { type CronClock, invalidSchedule, messageOf, TroupeError } from "../../kernel/index.js";

/** Expressions kept parsed: parsing one takes as long as finding a hundred of its times. */
const MAX_KEPT = 256;

/**
 * The times of cron expressions, by the package `croner`, which is loaded here: a host that uses no expression need not
 * have it. The hour that summer time skips is moved behind the gap; the one that it repeats is once, at the first of both,
 * unless the expression is of every hour.
 */
export async function loadCron(): Promise<CronClock> {
  let croner: typeof import("croner");
  try {
    croner = await import("croner");
  } catch (cause) {
    throw new TroupeError(
      "schedule_needs_croner",
      "A schedule with a cron expression needs the package croner: npm install croner@11. Schedules with at or everyMs do without it.",
      { cause },
    );
  }
  const kept = new Map<string, InstanceType<typeof croner.Cron>>();
  return (expression, timeZone, after) => {
    const name = `${timeZone} ${expression}`;
    let cron = kept.get(name);
    if (cron === undefined) {
      try {
        cron = new croner.Cron(expression, { timezone: timeZone, paused: true });
      } catch (error) {
        throw invalidSchedule(`cron ${JSON.stringify(expression)}: ${messageOf(error).replace(/^CronPattern: /, "")}`);
      }
      if (kept.size >= MAX_KEPT) kept.clear();
      kept.set(name, cron);
    }
    return cron.nextRun(new Date(after))?.getTime() ?? null;
  };
}
