import { createTroupe, type Message, type Troupe, type TroupeOptions } from "troupe";
import { eachOf } from "../measuring/held.js";
import { pause } from "../measuring/neighbours.js";
import { answerTo, type Told, type TurnRecord } from "./record.js";

const AT_ONCE = 32;
/** How often it is looked whether turns that were under way have been taken up and finished. */
const LOOK_MS = 100;
const MOST_LOOKS = 600;

/** Opens the store anew and compares it with what was told: whatever differs goes to the record's violations. */
export async function audit(options: TroupeOptions, record: TurnRecord, counter: string): Promise<void> {
  await using troupe = await createTroupe(options);
  await finishUnfinished(troupe, record);
  await eachOf([...record.sessions], AT_ONCE, async ([id, told]) => {
    const session = await troupe.session(id);
    record.violations.push(...differences(id, told, await session.messages()));
    const counted = await session.query<number>(counter);
    const [least, most] = [told.finished.size, told.finished.size + told.refusals];
    if (counted < least || counted > most)
      record.violations.push(`${id}: the plugin's state counts ${counted} turns; it should be ${least} to ${most}.`);
    await session.close();
  });
}

/** The runtime takes unfinished turns up by itself. */
async function finishUnfinished(troupe: Troupe, record: TurnRecord): Promise<void> {
  for (let look = 0; look < MOST_LOOKS; look++) {
    if (!(await hasUnfinished(troupe))) return;
    await pause(LOOK_MS);
  }
  record.violations.push("Turns that were under way at the end are still unfinished after the store was opened anew.");
}

async function hasUnfinished(troupe: Troupe): Promise<boolean> {
  for (let after: string | null | undefined; after !== null; ) {
    const page = await troupe.listSessions({ state: "unfinished", limit: 1, after });
    if (page.sessions.length > 0) return true;
    after = page.next;
  }
  return false;
}

/** Every finished turn once, with its answer; every refused one at most once; nothing that nobody asked for. */
function differences(id: string, { finished, refused }: Told, messages: readonly Message[]): string[] {
  const asked = new Map<string, number>();
  const answered = new Set<string>();
  for (const { role, parts } of messages) {
    const text = parts.map((part) => (part.type === "text" ? part.text : "")).join("");
    if (role === "user") asked.set(text, (asked.get(text) ?? 0) + 1);
    else if (role === "assistant") answered.add(text);
  }
  const found: string[] = [];
  for (const name of finished) {
    const times = asked.get(name) ?? 0;
    if (times !== 1) found.push(`${id}: the finished turn ${name} is in the store ${times} times.`);
    else if (!answered.has(answerTo(name))) found.push(`${id}: the answer of the finished turn ${name} is lost.`);
  }
  for (const [name, times] of asked) {
    if (finished.has(name)) continue;
    if (!refused.has(name)) found.push(`${id}: the store has a turn ${name} that nobody was told of.`);
    else if (times > 1) found.push(`${id}: the refused turn ${name} is in the store ${times} times.`);
  }
  return found;
}
