import { createTroupe, type Troupe } from "troupe";
import type { Load } from "./load.js";

/** What does not add up, one sentence each; empty when everything does. */
export async function checkCounts(troupe: Troupe, { tally, misplaced, expected }: Load): Promise<string[]> {
  const { asked, finished, refused } = tally;
  const problems: string[] = [];
  if (asked !== finished + refused) {
    problems.push(
      `${asked - finished - refused} turns were lost: asked ${asked}, finished ${finished}, refused ${refused}`,
    );
  }
  const { turns } = await troupe.stats();
  if (turns.asked !== asked || turns.finished !== finished || turns.refused !== refused) {
    problems.push(`the runtime counted ${turns.asked} asked, ${turns.finished} finished, ${turns.refused} refused`);
  }
  return [...problems, ...misplaced, ...(await checkSessions(troupe, expected))];
}

/** Opens the store once more, without plugins, and looks whether every session has the turns it must have. */
export async function checkStore(path: string, { expected }: Load): Promise<string[]> {
  await using troupe = await createTroupe({ store: { path } });
  return (await checkSessions(troupe, expected)).map((problem) => `in the reopened store, ${problem}`);
}

async function checkSessions(troupe: Troupe, expected: ReadonlyMap<string, number>): Promise<string[]> {
  const checks = [...expected].map(async ([id, turns]) => {
    const info = await (await troupe.session(id)).info();
    return info.turns === turns ? [] : [`session ${id} has ${info.turns} turns, not ${turns}`];
  });
  return (await Promise.all(checks)).flat();
}
