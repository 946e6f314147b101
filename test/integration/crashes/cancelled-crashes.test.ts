import type { Session, TurnResult } from "troupe";
import { expect, test } from "vitest";
import { CrashFolder } from "../../support/crash-matrix.js";

/**
 * A cancellation that was accepted, and then a real SIGKILL: at each seam of the crash matrix's reference turn up to its
 * last checkpoint, and behind it, where the cancellation comes too late. All sessions run in one process and die of one
 * kill; none of them can be stored before it, because its `afterTurn` hook waits.
 */
const POINTS = [
  ...[">beforeTurn", "<beforeTurn", ">model:0", "<model:0", ">response:0", "<response:0"],
  ...[">beforeTool:fetch", "<beforeTool:fetch", ">beforeTool:note", "<beforeTool:note", ">note", "<note"],
  ...[">afterTool:note", "<afterTool:note", ">fetch", "<fetch", ">afterTool:fetch", "<afterTool:fetch"],
  ...[">checkpoint:after_work", "<checkpoint:after_work", ">model:1", "<model:1", ">response:1", "<response:1"],
  ...[">checkpoint:before_completion", "<checkpoint:before_completion"],
];
const TOO_LATE = [">afterTurn", "<afterTurn", ">turnFinalized", "<turnFinalized"];
const BEGINNINGS = [">model:0", ">model:1", ">note", ">fetch"];

const idOf = (point: string) => point.replace(/\W/g, "-").replace(/^-/, point.startsWith(">") ? "before-" : "after-");

/** What was told, and the turn's lines behind the crash. What was steered into it too late begins a turn of its own there. */
function behindTheCrash(lines: readonly string[]): { readonly answer: string | undefined; readonly lines: string[] } {
  const at = lines.findIndex((line) => line === "cancelled" || line === "idle");
  const behind = lines.slice(at + 1);
  return { answer: lines[at], lines: behind.slice(0, behind.indexOf("<turnPersisted") + 1) };
}

/** The result as it is stored under the turn's key. */
const storedResult = async (session: Session): Promise<TurnResult> => session.turn("go", { key: "k" });

async function resultsOf(session: Session): Promise<string[]> {
  const messages = (await session.messages()).filter(({ id }) => id.startsWith("t1."));
  const calls = messages.flatMap(({ parts }) =>
    parts.flatMap((part) => (part.type === "tool_call" ? [part.callId] : [])),
  );
  const results = messages.flatMap(({ parts }) => parts.flatMap((part) => (part.type === "tool_result" ? [part] : [])));
  expect(results.map(({ callId }) => callId)).toEqual(calls);
  return results.map(({ status, text }) => `${status} ${text}`);
}

/** What was shown of answers that nothing came of. */
async function keptOf(session: Session): Promise<readonly unknown[]> {
  const cutOff = (await session.messages()).filter(({ interrupted }) => interrupted);
  return cutOff.flatMap(({ parts }) => parts);
}

/** Where an answer was written down and shown, and nothing came of it yet: its text is kept, without its calls. */
function shownAt(point: string): string[] {
  const at = POINTS.indexOf(point);
  if (at >= POINTS.indexOf(">response:1")) return ["Answer to the interjection."];
  return at >= POINTS.indexOf(">response:0") && at < POINTS.indexOf(">note") ? ["Looking."] : [];
}
/** Whether the other tool had ended by then is chance. */
const BY_CHANCE = [">note", "<note"];

test("a turn that was cancelled and then killed ends cancelled, begins nothing again and keeps what its tools did", {
  timeout: 90_000,
}, async () => {
  const crash = await CrashFolder.create();
  const order = { kills: "process", delayMs: 0, holds: true } as const;
  for (const point of [...POINTS, ...TOO_LATE]) {
    const late = TOO_LATE.includes(point);
    crash.order(idOf(point), { line: point, ...order }, ...(late ? [] : [{ line: ">afterTurn", ...order }]));
  }
  expect(await crash.runUntilCancelled([...POINTS, ...TOO_LATE].map(idOf))).toBe("SIGKILL");

  for (const point of POINTS) crash.countermand(idOf(point));
  const troupe = await crash.start("worker");
  for (const point of POINTS) {
    const id = idOf(point);
    const session = await troupe.session(id);
    const { outcome } = await storedResult(session);
    const { answer, lines } = behindTheCrash(crash.lines(id));
    expect.soft({ point, answer, outcome }).toEqual({
      point,
      answer: "cancelled",
      outcome: { type: "stopped", reason: "cancelled", code: "cancelled", message: "The user pressed stop." },
    });
    expect(lines.at(-1), point).toBe("<turnPersisted");
    expect.soft({ point, began: lines.filter((line) => BEGINNINGS.includes(line)) }).toEqual({ point, began: [] });
    const kept = shownAt(point).map((text) => ({ type: "text", text }));
    if (!BY_CHANCE.includes(point)) expect.soft({ point, kept: await keptOf(session) }).toEqual({ point, kept });
    const results = await resultsOf(session);
    // The tool had ended, and so was written down, when the seam behind it was passed.
    const reviewed = POINTS.indexOf(point) >= POINTS.indexOf(">afterTool:fetch");
    if (reviewed) expect.soft({ point, results }).toEqual({ point, results: ["success fetched", "success 1"] });
    else if (POINTS.indexOf(point) >= POINTS.indexOf(">afterTool:note"))
      expect.soft({ point, note: results[1] }).toEqual({ point, note: "success 1" });
  }
  for (const point of TOO_LATE) {
    const { outcome } = await storedResult(await troupe.session(idOf(point)));
    const { answer } = behindTheCrash(crash.lines(idOf(point)));
    const finished = { type: "finished", text: "Answer to the interjection." };
    expect.soft({ point, answer, outcome }).toEqual({ point, answer: "idle", outcome: finished });
  }
});
