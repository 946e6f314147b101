import { describe, expect, test } from "vitest";
import { initialTransition, type SnapshotFrom, transition } from "xstate";
import { TroupeError } from "../../../src/kernel/index.js";
import type { UnfinishedTurn } from "../../../src/session/journal/unfinished-turn.js";
import {
  type Asked,
  type ChartEvent,
  sessionLogic,
  sessionMachine,
} from "../../../src/session/life/session-machine.js";

type Snapshot = SnapshotFrom<typeof sessionMachine>;

const LOST = new TroupeError("store_lost", "The store is gone.");
const FULL = new TroupeError("store_write_failed", "The disk is full.");
const STALE = new TroupeError("session_stale", "The session must be opened again.");
const UNFINISHED: UnfinishedTurn = {
  turnId: "t1",
  since: 7,
  start: { call: undefined, input: "hi", parts: [], extras: {}, blobs: [], inputIds: [] },
  rows: [],
  resumed: 0,
  strikes: 0,
  idle: 0,
};

/** One of each kind, as it comes when nothing special is the matter. */
const EVENTS = {
  opened: { type: "opened", inputsWait: false },
  "open.failed": { type: "open.failed", error: FULL },
  posted: { type: "posted", mail: { id: 7, kind: "turn" } },
  "work.done": { type: "work.done", inputsWait: false },
  held: { type: "held" },
  released: { type: "released", inputsWait: false },
  "park (policy)": { type: "park", wanted: "policy", inputsWait: false },
  "park (host)": { type: "park", wanted: "host", inputsWait: false },
  saved: { type: "saved", complete: true, inputsWait: false },
  "save.failed": { type: "save.failed", error: FULL },
  leave: { type: "leave" },
  "turn.found": { type: "turn.found", turn: UNFINISHED },
  "turn.begun": { type: "turn.begun", turnId: "t1" },
  "turn.stored": { type: "turn.stored" },
  "turn.ended": { type: "turn.ended" },
  "turn.suspended": { type: "turn.suspended" },
  "session.stale": { type: "session.stale", error: STALE },
} satisfies Record<string, ChartEvent>;

type EventName = keyof typeof EVENTS;

/** What the chart asks for, in the order it does. */
function asked(actions: readonly { readonly type: string; readonly params?: unknown }[]): Asked[] {
  return actions.flatMap(({ type, params }) =>
    type === "xstate.emit" ? [(params as { readonly event: Asked }).event] : [],
  );
}

function step(snapshot: Snapshot, event: ChartEvent): { readonly next: Snapshot; readonly asked: readonly string[] } {
  const [next, actions] = transition(sessionMachine, snapshot, event);
  return { next, asked: asked(actions).map((each) => ("id" in each ? `${each.type} ${each.id}` : each.type)) };
}

function led(...events: readonly ChartEvent[]): Snapshot {
  const [first] = initialTransition(sessionMachine);
  return events.reduce((snapshot, event) => step(snapshot, event).next, first);
}

const { opened, posted, saved } = EVENTS;
/** A piece of mail behind the first. */
const second: ChartEvent = { type: "posted", mail: { id: 8, kind: "compact" } };
const STATES = {
  opening: [],
  idle: [opened],
  running: [opened, posted],
  parking: [opened, EVENTS["park (policy)"]],
  parked: [opened, EVENTS["park (policy)"], saved],
  stale: [opened, EVENTS["session.stale"]],
  failed: [EVENTS["open.failed"]],
} satisfies Record<string, readonly ChartEvent[]>;

test("a session begins by opening", () => {
  const [first, actions] = initialTransition(sessionMachine);
  expect([first.value, asked(actions)]).toEqual(["opening", [{ type: "open" }]]);
});

describe("every event in every state", () => {
  /** Where it leads, and what is asked for; "-" where the state stays and nothing is. */
  const TABLE: Record<EventName, readonly [opening: string, idle: string, running: string, parking: string]> = {
    opened: ["idle", "-", "-", "-"],
    "open.failed": ["failed", "-", "-", "-"],
    posted: ["-", "running: work 7", "-", "-"],
    "work.done": ["-", "-", "idle", "-"],
    held: ["-", "-", "-", "-"],
    released: ["-", "-", "-", "-"],
    "park (policy)": ["-", "parking: save", "-", "-"],
    "park (host)": ["-", "parking: save", "-", "-"],
    saved: ["-", "-", "-", "parked"],
    "save.failed": ["-", "-", "-", "idle: stays"],
    leave: ["-", "parking: save", "-", "-"],
    "turn.found": ["-", "-", "-", "-"],
    "turn.begun": ["-", "-", "-", "-"],
    "turn.stored": ["-", "-", "-", "-"],
    "turn.ended": ["-", "-", "-", "-"],
    "turn.suspended": ["-", "-", "-", "-"],
    "session.stale": ["-", "stale", "-", "-"],
  };
  const active = ["opening", "idle", "running", "parking"] as const;
  const rows = active.flatMap((state, column) =>
    Object.entries(TABLE).map(([name, cells]) => [name as EventName, state, cells[column] as string] as const),
  );

  test.each(rows)("%s in %s: %s", (name, state, expected) => {
    // Nobody lets go of a session that nobody holds.
    const before = name === "released" ? led(...STATES[state], { type: "held" }) : led(...STATES[state]);
    const { next, asked } = step(before, EVENTS[name]);
    const went = next.value === before.value ? "" : next.value;
    const cell = [went, asked.join(", ")].filter((part) => part !== "").join(": ");
    expect(cell === "" ? "-" : cell).toBe(expected);
  });

  test.each(["parked", "stale", "failed"] as const)("%s is the end: nothing follows", (state) => {
    const ended = led(...STATES[state]);
    expect([ended.value, ended.status]).toEqual([state, "done"]);
  });
});

describe("what comes next depends on what waits and who wants what", () => {
  const hold: ChartEvent = { type: "held" };
  const leave: ChartEvent = { type: "leave" };
  const stale = EVENTS["session.stale"];
  const wish = EVENTS["park (policy)"];
  const running = STATES.running;
  const inputs = { inputsWait: true };
  const { "work.done": done, released, "save.failed": unsaved } = EVENTS;

  const ROWS: [string, readonly ChartEvent[], ChartEvent, string, readonly string[]][] = [
    ["opened with mail", [posted, second], opened, "running", ["work 7"]],
    [
      "opened with a turn to be taken up",
      [posted],
      { ...opened, resume: { id: 9, kind: "resume" } },
      "running",
      ["work 9"],
    ],
    ["opened by one who leaves", [leave], opened, "parking", ["save"]],
    ["opened, and to be parked", [wish], opened, "parking", ["save"]],
    ["opened, to be parked, and held", [hold, EVENTS["park (host)"]], opened, "idle", []],
    ["work done with mail", [...running, second], done, "running", ["work 8"]],
    ["work done with mail, when stale", [...running, second, stale], done, "stale", []],
    ["work done when leaving", [...running, leave], done, "parking", ["save"]],
    ["work done when leaving with mail", [...running, second, leave], done, "running", ["work 8"]],
    ["work done, and to be parked", [...running, wish], done, "parking", ["save"]],
    ["work done, to be parked, inputs wait", [...running, wish], { ...done, ...inputs }, "idle", []],
    ["work done, to be parked, and held since", [...running, wish, hold], done, "idle", []],
    ["a wish of the runtime's while held, forgotten", [opened, hold, wish], released, "idle", []],
    ["a wish of the host's while held, kept", [opened, hold, EVENTS["park (host)"]], released, "parking", ["save"]],
    ["let go by one of two", [opened, hold, hold, EVENTS["park (host)"]], released, "idle", []],
    [
      "let go, to be parked, inputs wait",
      [opened, hold, EVENTS["park (host)"]],
      { ...released, ...inputs },
      "idle",
      [],
    ],
    ["stale while held", [opened, hold], stale, "idle", []],
    ["stale and let go", [opened, hold, stale], released, "stale", []],
    ["to be parked, inputs wait", [opened], { ...wish, ...inputs }, "idle", []],
    ["saved, and somebody came", [...STATES.parking, posted], saved, "running", ["stays", "work 7"]],
    ["saved, and somebody holds it", [...STATES.parking, hold], saved, "idle", ["stays"]],
    ["saved, and something changed meanwhile", STATES.parking, { ...saved, complete: false }, "idle", ["stays"]],
    ["saved, and an input came", STATES.parking, { ...saved, ...inputs }, "idle", ["stays"]],
    ["saved, leaving, whatever changed", [opened, leave, hold], { ...saved, ...inputs, complete: false }, "parked", []],
    [
      "saved, leaving, with mail from before",
      [...STATES.parking, posted, leave],
      saved,
      "running",
      ["stays", "work 7"],
    ],
    ["not saved, with mail", [...STATES.parking, posted], unsaved, "running", ["stays", "work 7"]],
    ["not saved, leaving", [opened, leave], unsaved, "failed", []],
    ["not saved, and stale", [...STATES.parking, stale], unsaved, "stale", []],
  ];

  test.each(ROWS)("%s", (_, before, event, state, asks) => {
    const { next, asked } = step(led(...before), event);
    expect([next.value, asked]).toEqual([state, asks]);
  });

  test("mail is done in the order it came, the turn a crash left before all of it", () => {
    const mail = (id: number): ChartEvent => ({ type: "posted", mail: { id, kind: "turn" } });
    let snapshot = led(mail(1), mail(2), mail(3));
    const works: string[] = [];
    const events: ChartEvent[] = [{ ...opened, resume: { id: 9, kind: "resume" } }, mail(4), done, mail(5), done, done];
    for (const event of [...events, done, done, done]) {
      const { next, asked } = step(snapshot, event);
      snapshot = next;
      works.push(...asked);
    }
    expect(works).toEqual(["work 9", "work 1", "work 2", "work 3", "work 4", "work 5"]);
    expect(snapshot.value).toBe("idle");
  });

  test("who asked for the session to be parked goes on waiting when somebody came, and no more when it cannot be stored", () => {
    const asksForHost = led(opened, EVENTS["park (host)"]);
    expect(step(step(asksForHost, posted).next, saved).next.context.parkedFor).toBe("host");
    expect(step(asksForHost, unsaved).next.context.parkedFor).toBeUndefined();
    expect(step(led(...STATES.parking, posted), saved).next.context.parkedFor).toBeUndefined();
  });

  test("a session that was never stored is stored for the host, not for the runtime", () => {
    const save = (event: ChartEvent) => asked(transition(sessionMachine, led(opened), event)[1]);
    expect(save(EVENTS["park (host)"])).toEqual([{ type: "save", always: true }]);
    expect(save(EVENTS["park (policy)"])).toEqual([{ type: "save", always: false }]);
  });

  test("a session that cannot be opened or stored says why", () => {
    expect(led(EVENTS["open.failed"]).context.failure).toBe(FULL);
    expect(led(opened, leave, unsaved).context.failure).toBe(FULL);
  });
});

describe("the union in its context", () => {
  const turn = [EVENTS["turn.begun"]];
  const told = [...turn, EVENTS["turn.stored"]];
  const stale = EVENTS["session.stale"];
  const running = { kind: "running", turnId: "t1" };
  const ROWS: [string, readonly ChartEvent[], unknown][] = [
    ["nothing runs", [], { kind: "idle" }],
    ["a turn was found", [EVENTS["turn.found"]], { kind: "unfinished", turn: UNFINISHED }],
    ["a found turn is begun", [EVENTS["turn.found"], ...turn], running],
    ["a turn is begun", turn, running],
    ["a turn is stored", told, { kind: "told", turnId: "t1" }],
    [
      "a stored turn is followed by one in its next frame",
      [...told, { type: "turn.begun", turnId: "t2" }],
      { kind: "running", turnId: "t2" },
    ],
    ["a turn ended unstored", [...turn, EVENTS["turn.ended"]], { kind: "idle" }],
    ["a turn was suspended", [...turn, EVENTS["turn.suspended"], EVENTS["turn.ended"]], { kind: "suspended" }],
    [
      "a found turn was suspended before it began",
      [EVENTS["turn.found"], EVENTS["turn.suspended"]],
      { kind: "suspended" },
    ],
    ["a suspended session does not become stale", [EVENTS["turn.suspended"], stale], { kind: "suspended" }],
    ["a write failed under a turn", [...turn, stale], { kind: "stale", error: STALE, turn: running }],
    [
      "the turn of a stale session is stored",
      [...turn, stale, EVENTS["turn.stored"]],
      { kind: "stale", error: STALE, turn: { kind: "told", turnId: "t1" } },
    ],
    [
      "a stale session stays stale behind its turn",
      [...turn, stale, EVENTS["turn.ended"]],
      { kind: "stale", error: STALE, turn: undefined },
    ],
    [
      "a stale session is not suspended",
      [stale, EVENTS["turn.suspended"]],
      { kind: "stale", error: STALE, turn: undefined },
    ],
    [
      "the first reason stays",
      [stale, { type: "session.stale", error: FULL }],
      { kind: "stale", error: STALE, turn: undefined },
    ],
    [
      "but for a store that is lost",
      [stale, { type: "session.stale", error: LOST }],
      { kind: "stale", error: LOST, turn: undefined },
    ],
    ["a turn that is stored ends with its work", [...told, EVENTS["work.done"]], { kind: "idle" }],
    ["nothing is stored or ended when no turn runs", [EVENTS["turn.stored"], EVENTS["turn.ended"]], { kind: "idle" }],
  ];

  test.each(ROWS)("%s", (_, events, life) => {
    expect(led(...STATES.running, ...events).context.life).toEqual(life);
  });

  test.each(ROWS)("the actor's short way gives what the chart gives: %s", (_, events) => {
    const before = led(...STATES.running);
    const through = (logic: typeof sessionMachine) =>
      events.reduce((snapshot, event) => transition(logic, snapshot, event)[0], before);
    const [chart, short] = [through(sessionMachine), through(sessionLogic)];
    expect({ ...short, context: undefined }).toEqual({ ...chart, context: undefined });
    expect(short.context).toEqual(chart.context);
  });
});

describe("combinations that cannot be", () => {
  /** What can come in a state: answers come to what was asked for, and turns run within work. */
  const ANYTIME: EventName[] = ["posted", "held", "park (policy)", "park (host)", "leave", "session.stale"];
  const ANSWERS: Record<string, readonly EventName[]> = {
    opening: ["opened", "open.failed", "turn.found"],
    idle: [],
    running: ["work.done", "turn.begun", "turn.stored", "turn.ended", "turn.suspended"],
    parking: ["saved", "save.failed"],
  };
  const possible = ({ value, context }: Snapshot): EventName[] => {
    // The actor takes no mail of a session that is leaving, and nobody lets go of what is not held.
    const posts = context.leaving || context.mailbox.length === 2 ? ["posted"] : [];
    const holds = context.held === 2 ? ["held"] : [];
    const barred = new Set<string>([...posts, ...holds]);
    const all = [...ANYTIME, ...(ANSWERS[value] ?? []), ...(context.held > 0 ? (["released"] as const) : [])];
    return all.filter((name) => !barred.has(name));
  };

  /** Every snapshot that some order of events leads to, with at most two pieces of mail and two that hold it. */
  function reachable(): Snapshot[] {
    const [first] = initialTransition(sessionMachine);
    const known = new Map<string, Snapshot>();
    const open = [first];
    for (let snapshot = open.pop(); snapshot !== undefined; snapshot = open.pop()) {
      const { life, mailbox, held, parkedFor, leaving } = snapshot.context;
      const under = life.kind === "stale" ? life.turn?.kind : undefined;
      const key = JSON.stringify([snapshot.value, life.kind, under, mailbox.length, held, parkedFor, leaving]);
      if (known.has(key)) continue;
      known.set(key, snapshot);
      if (snapshot.status !== "active") continue;
      for (const name of possible(snapshot)) open.push(step(snapshot, EVENTS[name]).next);
    }
    return [...known.values()];
  }

  const all = reachable();
  const NEVER: [string, (snapshot: Snapshot) => boolean][] = [
    ["an idle session with mail", ({ value, context }) => value === "idle" && context.mailbox.length > 0],
    ["an idle session that is leaving", ({ value, context }) => value === "idle" && context.leaving],
    [
      "an idle session with a turn under way",
      ({ value, context: { life } }) => value === "idle" && (life.kind === "running" || life.kind === "told"),
    ],
    ["a parked session with mail", ({ value, context }) => value === "parked" && context.mailbox.length > 0],
    [
      "a parked session that somebody holds, unless it was leaving",
      ({ value, context }) => value === "parked" && context.held > 0 && !context.leaving,
    ],
    [
      "a session that is parked while its turn runs",
      ({ value, context }) => value === "parked" && context.life.kind === "running",
    ],
    [
      "a stale session that says nothing of why",
      ({ value, context: { life } }) => value === "stale" && life.kind !== "stale" && life.kind !== "suspended",
    ],
    ["fewer than none that hold it", ({ context }) => context.held < 0],
  ];

  test("there are states enough to look at", () => {
    expect(new Set(all.map(({ value }) => value))).toEqual(new Set(Object.keys(STATES)));
  });

  test.each(NEVER)("%s", (_, is) => {
    expect(all.filter(is).map(({ value, context }) => [value, context])).toEqual([]);
  });
});
