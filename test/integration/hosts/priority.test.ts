import { readdirSync, readFileSync } from "node:fs";
import { getPriority } from "node:os";
import { expect, test } from "vitest";
import { plugin, refusalOf, startTroupe } from "../../support/runtime.js";

const BEHIND_OTHERS = 10;
// Elsewhere a priority is the process's, and it stays as it is.
const QUARANTINED = process.platform === "linux" && getPriority() < BEHIND_OTHERS ? [BEHIND_OTHERS] : [];

/** How nice the threads of this process are that are nicer than it is. */
function niceThreads(): number[] {
  if (process.platform !== "linux") return [];
  return readdirSync("/proc/self/task").flatMap((tid) => {
    // A thread's name may have spaces and stands in parentheses; the nice value is the 17th word behind it.
    const [, words = ""] = /\) (.*)/.exec(readFileSync(`/proc/self/task/${tid}/stat`, "latin1")) ?? [];
    const nice = Number(words.split(" ")[16]);
    return nice > getPriority() ? [nice] : [];
  });
}

test("a session in quarantine runs behind all others: of all threads, only its host's has a low priority", async () => {
  const troupe = await startTroupe({ sessionWorkers: 1, plugins: [{ module: plugin("offends") }] });
  const [bad, good] = [await troupe.session("bad"), await troupe.session("good")];
  for (let offence = 1; offence <= 2; offence++) {
    await refusalOf(bad.turn("exit"));
    expect((await good.turn("hi")).outcome.type).toBe("finished");
    expect(niceThreads()).toEqual([]);
  }
  expect((await bad.turn("hi")).outcome.type).toBe("finished");
  expect(niceThreads()).toEqual(QUARANTINED);
});
