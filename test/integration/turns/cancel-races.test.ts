import { type Activity, defineTool, type Session, scriptedModel, type Turn, type TurnResult } from "troupe";
import { expect, test } from "vitest";
import { EMPTY_OBJECT, PATIENT, plugin, startTroupe } from "../../support/runtime.js";

/**
 * Ten thousand turns, each cancelled at some moment of its life or just after it, many at a time. Whoever is first, a
 * turn ends once, and what it says about itself is what is stored.
 */
const SESSIONS = 250;
const RACES = 40;

const CALL = { toolCalls: [{ tool: "work", args: {} }] };
const CHUNKS = ["An ", "answer ", "to ", "{input}", "."];
const answerTo = (input: string) => `An answer to ${input}.`;
const model = scriptedModel({
  turns: [
    [CALL, { chunks: CHUNKS }],
    [CALL, { chunks: CHUNKS, chunkDelayMs: 1 }],
    [{ ...CALL, delayMs: 1 }, { chunks: CHUNKS }],
  ],
});

/** The same choices in every run; what they meet is the machine's affair. */
function choices(seed: number): (below: number) => number {
  let state = seed;
  return (below) => {
    state = (state * 1_664_525 + 1_013_904_223) % 2 ** 32;
    return Math.floor((state / 2 ** 32) * below);
  };
}

/** What is to happen when the tool of a session's turn runs. */
const inTool = new Map<string, () => void>();
const work = defineTool({
  description: "Works a little",
  inputSchema: EMPTY_OBJECT,
  execute: async (_args, { sessionId }) => {
    inTool.get(sessionId)?.();
    return "worked";
  },
});

interface Race {
  readonly sessionId: string;
  readonly turn: Turn;
  readonly cancel: () => void;
  readonly choose: (below: number) => number;
  /** What the turn told so far; undefined when nobody listens. */
  readonly onActivity: (listen: (count: number) => void) => void;
}

/** How long a whole turn takes here and now, in milliseconds: moments in between are shares of it. */
let life = 1;
const withinLife = ({ choose, cancel }: Race, lives: number) =>
  void setTimeout(cancel, (life * lives * choose(1_000)) / 1_000);

/** When a turn is cancelled. */
const MOMENTS = {
  "at once": ({ cancel }) => cancel(),
  queued: ({ cancel }) => cancel(),
  "on its way": (race) => withinLife(race, 1.2),
  "while it tells": ({ cancel, choose, onActivity }) => {
    const place = choose(14) + 1;
    onActivity((count) => count === place && cancel());
  },
  "in its tool": ({ cancel, sessionId }) => inTool.set(sessionId, cancel),
  "behind its tool": (race) => inTool.set(race.sessionId, () => withinLife(race, 0.5)),
  after: ({ cancel, turn }) => void turn.then(cancel),
} satisfies Record<string, (race: Race) => unknown>;
type Moment = keyof typeof MOMENTS;
const NAMES = Object.keys(MOMENTS) as Moment[];

interface Ended {
  readonly moment: Moment | "never";
  readonly input: string;
  readonly result: TurnResult;
}
const endOf = ({ outcome }: TurnResult) => (outcome.type === "stopped" ? outcome.reason : outcome.type);
const reasonOf = (input: string) => `Enough of ${input}.`;

async function race(session: Session, moment: Moment, input: string, choose: (below: number) => number) {
  const seen: Activity[] = [];
  let listen: ((count: number) => void) | undefined;
  inTool.delete(session.id);
  const started = performance.now();
  const turn = session.turn(input);
  const cancel = () => {
    turn.cancel(reasonOf(input));
    // Said again, now or later, with another reason: the first one counts.
    if (choose(2) === 0) turn.cancel("Again.");
    else setImmediate(() => turn.cancel("Again."));
  };
  MOMENTS[moment]({
    sessionId: session.id,
    turn,
    cancel,
    choose,
    onActivity: (told) => {
      listen = told;
    },
  });
  if (listen !== undefined || choose(2) === 0) for await (const activity of turn) listen?.(seen.push(activity));
  const result = await turn;
  if (moment !== "queued" && endOf(result) === "finished") life = performance.now() - started;
  const ends = seen.filter(({ type }) => type === "turn_finished");
  if (listen !== undefined)
    expect([ends, seen.at(-1)]).toEqual([[{ type: "turn_finished", result, at: expect.any(Number) }], ends[0]]);
  return { moment, input, result };
}

/** One session's races, and then one turn more that nobody cancels. */
async function live(session: Session, n: number): Promise<readonly Ended[]> {
  const choose = choices(n + 1);
  const ends: Ended[] = [];
  const undisturbed = async (input: string) => {
    ends.push({ moment: "never", input, result: await session.turn(input) });
  };
  for (let i = 0; i < RACES; i++) {
    const moment = NAMES[choose(NAMES.length)] as Moment;
    // The one before it is as long as any, so that the one behind it has to wait.
    const before = moment === "queued" ? undisturbed(`${n}-${i}-before`) : undefined;
    const ended = await race(session, moment, `${n}-${i}`, choose);
    await before;
    ends.push(ended);
  }
  inTool.delete(session.id);
  await undisturbed(`${n}-last`);
  return ends;
}

// turn §8.85
test("of 10,000 cancelled turns each ends once, finished or cancelled, and never says what is not stored", async () => {
  const troupe = await startTroupe({
    sessionWorkers: 2,
    model,
    tools: { work },
    plugins: [
      { module: new URL(`${plugin("lingers")}?id=test.inline`), tier: "inline" },
      { module: new URL(`${plugin("lingers")}?id=test.isolated`), ...PATIENT },
    ],
  });
  const sessions = await Promise.all(Array.from({ length: SESSIONS }, (_, n) => troupe.session(`s${n}`)));
  const lives = await Promise.all(sessions.map(live));
  for (const [n, session] of sessions.entries()) {
    checkResults(lives[n] as readonly Ended[]);
    await checkStored(session, lives[n] as readonly Ended[]);
  }
  const ends = lives.flat();
  expect(ends.filter(({ moment }) => moment !== "never")).toHaveLength(10_000);
  expect((await troupe.stats()).turns).toEqual({ asked: ends.length, finished: ends.length, refused: 0 });
  const endsOf = (wanted: Ended["moment"]) =>
    new Set(ends.filter(({ moment }) => moment === wanted).map(({ result }) => endOf(result)));
  // What came before everything else won, what came behind everything else lost; in between there were both.
  for (const early of ["at once", "queued", "in its tool"] as const) expect(endsOf(early)).toEqual(CANCELLED);
  for (const late of ["after", "never"] as const) expect(endsOf(late)).toEqual(FINISHED);
  for (const between of ["on its way", "while it tells", "behind its tool"] as const)
    expect([between, endsOf(between)]).toEqual([between, new Set([...FINISHED, ...CANCELLED])]);
}, 120_000);
const FINISHED = new Set(["finished"]);
const CANCELLED = new Set(["cancelled"]);

/** Whoever was first: one turn after another, each with its own answer or the reason it was cancelled for. */
function checkResults(ends: readonly Ended[]): void {
  ends.forEach(({ result, input }, index) => {
    const { turnIndex, turnId, revision, outcome, text, issues } = result;
    expect([turnIndex, turnId, revision, issues]).toEqual([index + 1, `t${index + 1}`, index + 1, []]);
    if (outcome.type === "finished") expect([outcome.text, text]).toEqual([answerTo(input), answerTo(input)]);
    else {
      const message = reasonOf(input);
      const cancelled = { type: "stopped", reason: "cancelled", code: "cancelled", message };
      expect([outcome, text]).toEqual([cancelled, ""]);
    }
  });
}

/** Compares what the turns of a session said of themselves with the session, its history and what plugins were told. */
async function checkStored(session: Session, ends: readonly Ended[]): Promise<void> {
  const history = await session.query<Row[]>("test.inline.history");
  const { turnIndex, revision, messageCount, running, usage } = await session.view();
  expect([turnIndex, revision, messageCount, running]).toEqual([ends.length, ends.length, history.length, null]);
  const sum = (of: "inputTokens" | "outputTokens") => ends.reduce((total, { result }) => total + result.usage[of], 0);
  expect([usage.inputTokens, usage.outputTokens]).toEqual([sum("inputTokens"), sum("outputTokens")]);
  for (const ended of ends) checkHistory(ended, history);
  const told = ends.flatMap(({ result }) => [
    ["decided", result.turnId, endOf(result)],
    ["stored", result.turnId, endOf(result), result.revision],
  ]);
  for (const id of ["test.inline", "test.isolated"]) expect(await session.query(`${id}.told`)).toEqual(told);
}

type Row = readonly [id: string, role: string, text: string];

/** All of a turn that finished; of one that was cancelled as far as it had come, but no call without its result and no text that is not whole. */
function checkHistory({ input, result }: Ended, history: readonly Row[]): void {
  const own = history.filter(([id]) => id.startsWith(`${result.turnId}.`));
  const said = own.map(([, role, text]) => `${role}: ${text.replace(/^\[Tool execution cancelled\].*/s, "cut")}`);
  const whole = [`user: ${input}`, "assistant: tool_call", "tool: worked", `assistant: ${answerTo(input)}`];
  if (endOf(result) === "finished") expect(said).toEqual(whole);
  else expect([whole.slice(0, 1), [...whole.slice(0, 2), "tool: cut"], whole.slice(0, 3), whole]).toContainEqual(said);
  expect(result.toolCalls.length).toBe(said.length > 1 ? 1 : 0);
}
