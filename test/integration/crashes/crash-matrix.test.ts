import type { Session, Troupe, Turn } from "troupe";
import { describe, expect, test } from "vitest";
import { CrashFolder, eachOf } from "../../support/crash-matrix.js";
import { collect, refusalOf, until } from "../../support/runtime.js";

/**
 * The reference turn: a step with two tool calls (the host's, which is steered into meanwhile, and a plugin's, which
 * changes the plugin's state), a checkpoint that delivers what was said, a second model call, hooks at every stage. It is
 * recorded at its seams; every line of that trace is a crash point.
 *
 * Four sessions, each at another point, die of one crash: three wait at their lines, the last one runs into it, with
 * writes on their way. A seed says which is the last, how long before the crash the store may still work, and how many
 * other turns die with them. TROUPE_CRASH_SEEDS=10 runs ten for each point, so that each is the last of its four at
 * least twice; without it, two where a thread dies and one where a process does.
 */
const SEEDS = Number(process.env.TROUPE_CRASH_SEEDS ?? 2);
const PROCESS_SEEDS = Number(process.env.TROUPE_CRASH_SEEDS ?? 1);
const LONG = { timeout: 300_000 + 180_000 * SEEDS };

/**
 * What a crash at each effect, before or after it, makes happen twice. Everything else happens once; the preparation of
 * the turn too, from when its model was called.
 */
const TWICE: Readonly<Record<string, string>> = {
  beforeTurn: "beforeTurn",
  "model:0": "model:0",
  "response:0": "response:0",
  "beforeTool:fetch": "response:0 beforeTool:fetch",
  "beforeTool:note": "response:0 beforeTool:fetch beforeTool:note",
  note: "response:0 beforeTool:fetch beforeTool:note note",
  "afterTool:note": "response:0 beforeTool:fetch beforeTool:note afterTool:note",
  fetch: "response:0 beforeTool:fetch beforeTool:note afterTool:note fetch",
  "afterTool:fetch": "response:0 beforeTool:fetch beforeTool:note afterTool:note afterTool:fetch",
  "checkpoint:after_work":
    "response:0 beforeTool:fetch beforeTool:note afterTool:note afterTool:fetch checkpoint:after_work",
  "model:1": "response:0 beforeTool:fetch beforeTool:note afterTool:note afterTool:fetch model:1",
  "response:1": "response:0 beforeTool:fetch beforeTool:note afterTool:note afterTool:fetch response:1",
  "checkpoint:before_completion":
    "response:0 beforeTool:fetch beforeTool:note afterTool:note afterTool:fetch response:1 checkpoint:before_completion",
  afterTurn:
    "response:0 beforeTool:fetch beforeTool:note afterTool:note afterTool:fetch response:1 checkpoint:before_completion afterTurn",
  turnFinalized:
    "response:0 beforeTool:fetch beforeTool:note afterTool:note afterTool:fetch response:1 checkpoint:before_completion afterTurn turnFinalized",
  // It is stored by then.
  turnPersisted: "",
};

const EFFECTS = Object.keys(TWICE);
const POINTS = EFFECTS.flatMap((effect) => [`>${effect}`, `<${effect}`]);
const effectOf = (point: string) => point.slice(1);

/** Before the first paid answer is written down nobody waits for the store: a process may die with nothing of the turn in it. */
const MAY_LEAVE_NOTHING: readonly string[] = ["beforeTurn", "model:0"];

/** What is left of the turn in the end, wherever it was interrupted. */
const END = {
  turns: 1,
  inputs: [],
  messages: [
    ["user", "go"],
    ["assistant", "Looking.", "call fetch", "call note"],
    ["tool", "success fetched", "success 1"],
    ["user", "the interjection"],
    ["assistant", "Answer to the interjection."],
  ],
  usage: { inputTokens: 20, outputTokens: 10, cacheReadTokens: 0, cacheWriteTokens: 0, reasoningTokens: 0 },
  ledger: [["turn", 20, 10]],
  state: { begun: 1, answers: 2, asked: 2, notes: ["kept"], reviewed: 2, checkpoints: 2, ended: 1 },
};

async function endOf(session: Session): Promise<typeof END> {
  const [{ turns }, { usage, ledger }, messages, inputs, state] = await Promise.all([
    session.info(),
    session.view(),
    session.messages(),
    session.inputs(),
    session.query("reference.state"),
  ]);
  return {
    turns,
    inputs: inputs as [],
    messages: messages.map(({ role, parts }) => [role, ...parts.map(shown)]),
    usage,
    ledger: ledger.map((entry) => [entry.source, entry.usage.inputTokens, entry.usage.outputTokens]) as never,
    state: state as (typeof END)["state"],
  };
}

function shown(part: { readonly type: string; readonly [field: string]: unknown }): string {
  if (part.type === "tool_call") return `call ${part.toolName}`;
  return part.type === "tool_result" ? `${part.status} ${part.text}` : String(part.text);
}

/** Each effect with how often it must have been begun. */
function expected(...points: readonly string[]): Record<string, number> {
  const counts = Object.fromEntries(EFFECTS.map((effect) => [effect, 1]));
  for (const point of points)
    for (const effect of (TWICE[effectOf(point)] as string).split(" ").filter(Boolean))
      counts[effect] = (counts[effect] as number) + 1;
  return counts;
}

/**
 * What the turn was asked with is on its way to the store while its first model call begins, and nobody waits for it: a
 * crash there may have the preparation done again.
 */
function preparedOnce(point: string, { beforeTurn }: Record<string, number>): Record<string, number> {
  return effectOf(point) === "model:0" ? { beforeTurn: beforeTurn === 2 ? 2 : 1 } : {};
}

const GROUP = 4;

/** Sessions that die of one crash, the last one last. */
interface Group {
  readonly members: readonly { readonly id: string; readonly point: string }[];
  readonly ids: readonly string[];
  readonly delayMs: number;
  readonly beside: number;
}

/** Every point once for each seed. Neighbours are in different groups: a crash finds turns at all their stages. */
function groups(seeds: number): Group[] {
  const apart = POINTS.length / GROUP;
  return Array.from({ length: seeds * apart }, (_, index) => {
    const [seed, first] = [Math.floor(index / apart), index % apart];
    const members = Array.from({ length: GROUP }, (_, nth) => {
      const place = first + ((nth + seed) % GROUP) * apart;
      return { id: `s${place}-${seed}`, point: POINTS[place] as string };
    });
    const delayMs = (seed * 7 + first * 5) % 23;
    return { members, ids: members.map(({ id }) => id), delayMs, beside: (seed + first) % 3 };
  });
}

function orderCrash(crash: CrashFolder, { members, ids, delayMs }: Group, kills: "thread" | "process"): void {
  for (const { id, point } of members) crash.order(id, { line: point, kills, delayMs, group: ids });
}

// quality §3.2
describe("the reference turn", () => {
  test("passes exactly the seams that have a row, in this order", async () => {
    for (const tier of ["inline", "worker"] as const) {
      const crash = await CrashFolder.create();
      const troupe = await crash.start(tier);
      const session = await troupe.session("plain");
      const result = await session.turn("go");
      expect(crash.lines("plain")).toEqual(POINTS);
      expect(await endOf(session)).toEqual(END);
      expect(result).toMatchObject({ turnIndex: 1, text: "Answer to the interjection." });
    }
  });
});

// quality §3.2
describe("a session worker that dies", () => {
  test("at any seam costs the caller nothing, and repeats what the table says", LONG, async () => {
    const all = groups(SEEDS);
    let done = 0;
    const check = async (crash: CrashFolder, session: Session, point: string, turn: Turn) => {
      const seen = collect(turn).catch(() => []);
      if (effectOf(point) === "turnPersisted")
        expect(await refusalOf(turn), point).toMatchObject({ code: "turn_result_lost", details: { turnIndex: 1 } });
      else {
        expect(await turn, point).toMatchObject({ turnIndex: 1, text: "Answer to the interjection.", modelCalls: 2 });
        expect((await seen).filter(({ type }) => type === "turn_finished")).toHaveLength(1);
      }
      const counts = crash.counts(session.id);
      expect.soft({ point, ...counts }).toEqual({ point, ...expected(point), ...preparedOnce(point, counts) });
      expect.soft({ point, ...(await endOf(session)) }).toEqual({ point, ...END });
      done++;
      await session.close();
    };
    await eachOf([0, 1], 2, async (share) => {
      const crash = await CrashFolder.create();
      const troupe = await crash.start("inline");
      for (const group of all.filter((_, index) => index % 2 === share)) {
        orderCrash(crash, group, "thread");
        const sessions = await Promise.all(group.ids.map((id) => troupe.session(id)));
        const checked = group.members.map(async ({ point }, nth) => {
          if (nth === GROUP - 1) await crash.atTheirLines(group.ids.slice(0, -1));
          const session = sessions[nth] as Session;
          await check(crash, session, point, session.turn("go"));
        });
        await Promise.all(checked);
      }
    });
    expect(done).toBe(POINTS.length * SEEDS);
  });

  test("again while its turn is taken up again, is as if it had died once more", LONG, async () => {
    const crash = await CrashFolder.create();
    const troupe = await crash.start("inline");
    const pairs = [
      ["<note", ">response:0"],
      ["<fetch", ">afterTool:note"],
      [">model:1", "<model:1"],
      ["<turnFinalized", ">turnFinalized"],
    ] as const;
    const group = pairs.map((_, index) => `twice${index}`);
    for (const [index, [first, second]] of pairs.entries()) {
      const crashes = { kills: "thread", delayMs: 0, group } as const;
      // The second one is met by the turn that is taken up again.
      crash.order(`twice${index}`, { line: first, ...crashes }, { line: second, ...crashes });
    }
    const run = async (id: string) => {
      const session = await troupe.session(id);
      expect(await session.turn("go")).toMatchObject({ turnIndex: 1, modelCalls: 2 });
      expect.soft({ id, ...(await endOf(session)) }).toEqual({ id, ...END });
    };
    await Promise.all(group.map(run));
    expect((await troupe.stats()).workers[0]?.restarts).toBe(2);
  });
});

// quality §3.2
describe("a process that is killed", () => {
  test("at any seam leaves a turn that the next one finishes by itself", LONG, async () => {
    let finished = 0;
    await eachOf(groups(PROCESS_SEEDS), 2, async (group) => {
      const crash = await CrashFolder.create();
      orderCrash(crash, group, "process");
      // They are killed wherever they happen to be.
      const others = Array.from({ length: group.beside }, (_, n) => `other${n}`);
      expect(await crash.runUntilKilled(group.ids, others), group.ids.join()).toBe("SIGKILL");
      const troupe = await crash.start("worker");
      for (const { id, point } of group.members) {
        const mustGoOn = !MAY_LEAVE_NOTHING.includes(effectOf(point));
        // Nobody has asked for the session by then.
        if (mustGoOn && effectOf(point) !== "turnPersisted")
          await until(`${point} is finished`, () => crash.lines(id).includes("<turnPersisted"));
        if ((await turnsOf(troupe, id)) === 0) {
          expect.soft(mustGoOn, point).toBe(false);
          continue;
        }
        const counts = crash.counts(id);
        expect.soft({ point, ...counts }).toEqual({ point, ...expected(point), ...preparedOnce(point, counts) });
        expect.soft({ point, ...(await endOf(await troupe.session(id))) }).toEqual({ point, ...END });
        finished++;
      }
      for (const id of others) {
        if ((await turnsOf(troupe, id)) === 0) continue;
        expect.soft({ id, ...(await endOf(await troupe.session(id))) }).toEqual({ id, ...END });
        for (const [effect, count] of Object.entries(crash.counts(id))) expect([1, 2], effect).toContain(count);
      }
      await troupe.close();
    });
    expect(finished).toBeGreaterThanOrEqual((POINTS.length - 4) * PROCESS_SEEDS);
  });
});

/** How many turns a session has when nothing runs in it any more. */
async function turnsOf(troupe: Troupe, id: string): Promise<number> {
  const session = await troupe.session(id);
  await until(`${id} is idle`, async () => ["idle", "parked"].includes((await session.info()).state));
  return (await session.info()).turns;
}
