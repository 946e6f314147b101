import { type TroupeError, wireCorrupt } from "../../../kernel/index.js";
import type { RunAnswer } from "../../plugin-thread/index.js";

/** The answer of a run of so many hooks, checked: a plugin's thread may send anything. */
export function readRunAnswer(answer: unknown, hooks: number): RunAnswer {
  if (!Array.isArray(answer) || answer.length !== 4) throw corrupt("it is no list of four");
  const [times, answers, failure, unfinished] = answer as unknown[];
  if (!Array.isArray(times) || times.length > hooks || !times.every(isTime)) throw corrupt("it has no times");
  if (answers !== 0 && !(Array.isArray(answers) && answers.length === times.length))
    throw corrupt("its answers are not those of its hooks");
  const isUnfinished = Array.isArray(unfinished) && unfinished.length === 2 && unfinished.every(Number.isInteger);
  if (unfinished !== 0 && !isUnfinished) throw corrupt("it names no run");
  if (times.length === hooks && (failure !== 0 || unfinished !== 0)) throw corrupt("it has more hooks than were asked");
  return answer as unknown as RunAnswer;
}

function isTime(ms: unknown): boolean {
  return typeof ms === "number" && ms >= 0;
}

function corrupt(why: string): TroupeError {
  return wireCorrupt("A plugin host", `it answers a run of hooks as no host does: ${why}`);
}
