import { describe, expect, it } from "vitest";
import { stepTurn, type TurnEvent, type TurnIssue, type TurnState } from "../../../src/kernel/index.js";
import type { TurnPhase, TurnStep } from "../../../src/kernel/turn/turn-state.js";
import {
  ANSWER,
  CODE,
  ISSUE,
  injected,
  linesOf,
  namesOf,
  PLACES,
  type Place,
  record,
  saying,
  text,
  turnAt,
} from "./turns.js";

/**
 * The whole machine as data: at every place, what every event leads to. A phase or an event that is new does not compile
 * until it has its rows here; `npm run check:types` says so.
 */
type EventType = TurnEvent["type"];

/** One of each. What they say is seen in the state wherever they are taken. */
const EVENTS: { readonly [T in EventType]: Extract<TurnEvent, { type: T }> } = {
  before_turn_done: { type: "before_turn_done", directives: injected("p", "a word") },
  prompt_done: { type: "prompt_done" },
  prompt_failed: { type: "prompt_failed", issue: ISSUE },
  before_model_done: { type: "before_model_done" },
  before_model_failed: { type: "before_model_failed", issue: ISSUE },
  frame_switch: { type: "frame_switch", frameId: "f2", task: "Go on." },
  model_done: ANSWER.model(text("an answer")) as Extract<TurnEvent, { type: "model_done" }>,
  model_failed: { type: "model_failed", issue: ISSUE },
  budget_spent: { type: "budget_spent", issue: ISSUE },
  code_done: ANSWER.code({ observations: ["2"] }) as Extract<TurnEvent, { type: "code_done" }>,
  tools_done: ANSWER.tools([record("c1")]) as Extract<TurnEvent, { type: "tools_done" }>,
  checkpoint_done: { type: "checkpoint_done", directives: saying("p", "passed") },
  checkpoint_failed: { type: "checkpoint_failed", issue: ISSUE },
  after_turn_done: { type: "after_turn_done", directives: injected("p", "for next time"), issues: [] },
  captured: { type: "captured", issues: [ISSUE] },
  committed: { type: "committed", revision: 1 },
  delivered: { type: "delivered", issues: [ISSUE] },
  cancel: { type: "cancel", reason: "Enough." },
  refused: { type: "refused" },
};

/** The places a phase is met at. */
const PLACES_OF: Readonly<Record<TurnPhase, readonly Place[]>> = {
  before_turn: ["before_turn"],
  prompt: ["prompt"],
  before_model: ["before_model"],
  model: ["model"],
  tools: ["tools"],
  code: ["code"],
  checkpoint: ["after_work", "before_completion", "synced_after_work", "synced_before_completion"],
  after_turn: ["after_turn"],
  capture: ["capture"],
  commit: ["commit"],
  deliver: ["deliver"],
  done: ["done"],
  failed: ["failed"],
};

/** Where an event leads: the phase, what is told and asked for, what is added to the conversation, and the outcome. */
interface Row {
  readonly to: TurnPhase;
  readonly effects: readonly string[];
  readonly adds: readonly string[];
  readonly outcome: string | undefined;
}
/** Nothing changes, and nothing is asked for. */
const IGNORED = "ignored";
/** Nothing is asked for, and nothing changes but that the turn will end with the next answer. */
const WAITS = "waits";
type Cell = Row | typeof IGNORED | typeof WAITS;

const to = (phase: TurnPhase, effects: readonly string[], more: Partial<Row> = {}): Row => ({
  to: phase,
  effects,
  adds: [],
  outcome: undefined,
  ...more,
});
const MODEL = ["emit model_call_started", "model"];
const stopped = (outcome: string): Row => to("after_turn", ["emit issue", "after_turn"], { outcome });
const callFailed = (outcome: string): Row =>
  to("after_turn", ["emit model_call_failed", "emit issue", "after_turn"], { outcome });
const BROKEN = stopped("runtime_error: hook_failed");
const FAILED = to("failed", []);

const NOTHING: Readonly<Record<EventType, Cell>> = {
  before_turn_done: IGNORED,
  prompt_done: IGNORED,
  prompt_failed: IGNORED,
  before_model_done: IGNORED,
  before_model_failed: IGNORED,
  frame_switch: IGNORED,
  model_done: IGNORED,
  model_failed: IGNORED,
  budget_spent: IGNORED,
  code_done: IGNORED,
  tools_done: IGNORED,
  checkpoint_done: IGNORED,
  checkpoint_failed: IGNORED,
  after_turn_done: IGNORED,
  captured: IGNORED,
  committed: IGNORED,
  delivered: IGNORED,
  cancel: IGNORED,
  refused: IGNORED,
};
const WORKING = { ...NOTHING, cancel: WAITS } as const;

const TABLE: Readonly<Record<Place, Readonly<Record<EventType, Cell>>>> = {
  before_turn: {
    ...WORKING,
    before_turn_done: to("prompt", ["emit messages_injected", "prompt"], { adds: ["user: a word"] }),
    refused: FAILED,
  },
  prompt: { ...WORKING, prompt_done: to("model", MODEL), prompt_failed: BROKEN },
  before_model: {
    ...WORKING,
    before_model_done: to("model", MODEL),
    before_model_failed: BROKEN,
    frame_switch: to("after_turn", ["after_turn"], { outcome: "frame f2: Go on." }),
  },
  model: {
    ...WORKING,
    // Before every call the tools are looked at once more, and may be found broken.
    prompt_failed: callFailed("runtime_error: hook_failed"),
    model_done: to("checkpoint", ["emit model_call_finished", "checkpoint before_completion"], {
      adds: ["assistant: an answer"],
      outcome: "finished: an answer",
    }),
    model_failed: callFailed("provider_error: hook_failed"),
    budget_spent: callFailed("budget: hook_failed"),
  },
  tools: { ...WORKING, tools_done: to("checkpoint", ["checkpoint after_work"], { adds: ["tool: seen"] }) },
  code: { ...WORKING, code_done: to("checkpoint", ["checkpoint after_work"], { adds: ["user: 2"] }) },
  after_work: {
    ...WORKING,
    checkpoint_done: to("model", ["emit plugin_event", ...MODEL]),
    checkpoint_failed: BROKEN,
  },
  before_completion: {
    ...WORKING,
    checkpoint_done: to("after_turn", ["emit plugin_event", "after_turn"], { outcome: "finished: hi" }),
    checkpoint_failed: BROKEN,
  },
  synced_after_work: {
    ...WORKING,
    checkpoint_done: to("prompt", ["emit plugin_event", "prompt"]),
    checkpoint_failed: BROKEN,
  },
  synced_before_completion: {
    ...WORKING,
    checkpoint_done: to("after_turn", ["emit plugin_event", "after_turn"], { outcome: "finished: hi" }),
    checkpoint_failed: BROKEN,
  },
  // From here on the turn is decided: a cancellation comes too late.
  after_turn: {
    ...NOTHING,
    after_turn_done: to("capture", ["capture"], { adds: ["user: for next time"], outcome: "finished: hi" }),
    refused: { ...FAILED, outcome: "finished: hi" },
  },
  capture: {
    ...NOTHING,
    captured: to("commit", ["commit"], { outcome: "finished: hi" }),
    refused: { ...FAILED, outcome: "finished: hi" },
  },
  commit: {
    ...NOTHING,
    committed: to("deliver", ["deliver"], { outcome: "finished: hi" }),
    refused: { ...FAILED, outcome: "finished: hi" },
  },
  deliver: { ...NOTHING, delivered: to("done", ["emit turn_finished"], { outcome: "finished: hi" }) },
  done: NOTHING,
  failed: NOTHING,
};

const CELLS = PLACES.flatMap((place) =>
  Object.values(EVENTS).map((event): [Place, EventType, TurnEvent, Cell] => [
    place,
    event.type,
    event,
    TABLE[place][event.type],
  ]),
);

function rowOf({ state, effects }: TurnStep, before: TurnState): Row {
  return {
    to: state.phase,
    effects: namesOf({ state, effects }),
    adds: linesOf(state).slice(before.messages.length),
    outcome: outcomeOf(state),
  };
}

function outcomeOf({ outcome }: TurnState): string | undefined {
  if (outcome === undefined) return undefined;
  if (outcome.type === "frame_switch") return `frame ${outcome.frameId}: ${outcome.task}`;
  return outcome.type === "finished" ? `finished: ${outcome.text}` : `${outcome.reason}: ${outcome.code}`;
}

describe("the table of the turn", () => {
  it("has a place for every phase, and every place in its phase", () => {
    expect(Object.values(PLACES_OF).flat().sort()).toEqual([...PLACES].sort());
    for (const [phase, places] of Object.entries(PLACES_OF)) {
      for (const place of places) expect([place, turnAt(place).state.phase]).toEqual([place, phase]);
    }
  });

  it.each(CELLS)("at %s, %s", (place, _, event, cell) => {
    const before = turnAt(place).state;
    const step = stepTurn(before, event);
    if (cell === IGNORED) expect(step).toEqual({ state: before, effects: [] });
    else if (cell === WAITS) expect(step).toEqual({ state: { ...before, cancel: { reason: "Enough." } }, effects: [] });
    else expect(rowOf(step, before)).toEqual(cell);
  });

  it.each(CELLS)("at %s, %s behind a cancellation", (place, _, event, cell) => {
    const before = turnAt(place, EVENTS.cancel).state;
    const step = stepTurn(before, event);
    // Where a cancellation came too late, everything is as if there had been none.
    if (TABLE[place].cancel === IGNORED) expect(step).toEqual(turnAt(place, event));
    // What nobody waits for is still ignored, and so is a second cancellation.
    else if (cell === IGNORED || cell === WAITS) expect(step).toEqual({ state: before, effects: [] });
    else if (event.type === "refused") expect(step.state.phase).toBe("failed");
    else {
      expect([step.state.phase, outcomeOf(step.state)]).toEqual(["after_turn", "cancelled: cancelled"]);
      expect(step.effects.at(-1)?.type).toBe("after_turn");
    }
  });

  it.each(CELLS)("at %s, %s that says what else went wrong", (place, _, event, cell) => {
    if (event.type === "cancel") return;
    const before = turnAt(place).state;
    const other: TurnIssue = { kind: "plugin", code: "stream_finished_failed", message: "Nobody heard it." };
    const said = { ...event, issues: [other] };
    if (cell === IGNORED) expect(stepTurn(before, said)).toEqual({ state: before, effects: [] });
    else expect(stepTurn(before, said).state.issues[0]).toEqual(other);
  });

  it("keeps everything a tool or code came to, and nothing the model said, of a turn that is cancelled meanwhile", () => {
    const adds = (place: Place, event: TurnEvent) => {
      const before = turnAt(place, EVENTS.cancel).state;
      return linesOf(stepTurn(before, event).state).slice(before.messages.length);
    };
    expect(adds("model", EVENTS.model_done)).toEqual([]);
    expect(adds("model", ANSWER.interpreted(CODE, text("1 + 1")))).toEqual([]);
    expect(adds("tools", EVENTS.tools_done)).toEqual(["tool: seen"]);
    expect(adds("code", EVENTS.code_done)).toEqual(["user: 2"]);
  });
});
