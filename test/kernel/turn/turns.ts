import {
  type CodeResult,
  type FinishReason,
  type ModelResponse,
  NO_DIRECTIVES,
  NO_USAGE,
  type Part,
  type ProtocolStep,
  startTurn,
  stepTurn,
  type ToolCall,
  type ToolRecord,
  type TurnConfig,
  type TurnDirectives,
  type TurnEffect,
  type TurnEvent,
  type TurnIssue,
  type TurnState,
  type Usage,
} from "../../../src/kernel/index.js";
import type { TurnStep } from "../../../src/kernel/turn/turn-state.js";

const input: readonly Part[] = [{ type: "text", text: "hello" }];
export const CONFIG: TurnConfig = { sessionId: "s", turnId: "t1", turnIndex: 0, input, maxSteps: 3 };
export const USAGE: Usage = { ...NO_USAGE, inputTokens: 10, outputTokens: 5 };
export const ISSUE: TurnIssue = { kind: "plugin", code: "hook_failed", message: "It failed.", pluginId: "p" };

export const text = (value: string): Part => ({ type: "text", text: value });
export const call = (callId: string, args: ToolCall["args"] = {}): Part => ({
  type: "tool_call",
  callId,
  toolName: "look",
  args,
});

export function response(parts: readonly Part[], reason: FinishReason = "stop"): ModelResponse {
  return { parts, reason, usage: USAGE };
}

export function record(callId: string, value = "seen"): ToolRecord {
  return { callId, toolName: "look", args: {}, output: { status: "success", value }, durationMs: 1, completed: 0 };
}

/** What code came to; nothing printed unless said otherwise. */
export const ran = (result: Partial<CodeResult> = {}): CodeResult => ({
  observations: [],
  toolCalls: [],
  durationMs: 1,
  ...result,
});

export const injected = (pluginId: string, ...texts: string[]): TurnDirectives => ({
  ...NO_DIRECTIVES,
  messages: texts.map((value) => ({ pluginId, value: { role: "user", text: value } })),
});
export const aborting = (pluginId: string, code: string): TurnDirectives => ({
  ...NO_DIRECTIVES,
  abort: { pluginId, value: { kind: "abort_turn", code, message: `${code} it is.` } },
});
export const saying = (pluginId: string, name: string): TurnDirectives => ({
  ...NO_DIRECTIVES,
  events: [{ pluginId, value: { name } }],
});

/** The usual answers. */
export const ANSWER = {
  beforeTurn: (directives: TurnDirectives = NO_DIRECTIVES): TurnEvent => ({ type: "before_turn_done", directives }),
  prompt: { type: "prompt_done" } as TurnEvent,
  syncedPrompt: { type: "prompt_done", syncs: true } as TurnEvent,
  beforeModel: { type: "before_model_done" } as TurnEvent,
  frameSwitch: { type: "frame_switch", frameId: "f2", task: "Go on." } as TurnEvent,
  model: (...parts: Part[]): TurnEvent => ({ type: "model_done", response: response(parts) }),
  /** The protocol makes something else of the answer than native tool calling would. */
  interpreted: (next: ProtocolStep, ...parts: Part[]): TurnEvent => ({
    type: "model_done",
    response: response(parts),
    next,
  }),
  code: (result: Partial<CodeResult> = {}, directives: TurnDirectives = NO_DIRECTIVES): TurnEvent => ({
    type: "code_done",
    result: ran(result),
    directives,
  }),
  tools: (records: readonly ToolRecord[], directives: TurnDirectives = NO_DIRECTIVES): TurnEvent => ({
    type: "tools_done",
    records,
    directives,
  }),
  checkpoint: (directives: TurnDirectives = NO_DIRECTIVES): TurnEvent => ({ type: "checkpoint_done", directives }),
  afterTurn: (directives: TurnDirectives = NO_DIRECTIVES, issues: readonly TurnIssue[] = []): TurnEvent => ({
    type: "after_turn_done",
    directives,
    issues,
  }),
  captured: (issues: readonly TurnIssue[] = []): TurnEvent => ({ type: "captured", issues }),
  committed: { type: "committed", revision: 1 } as TurnEvent,
  delivered: (issues: readonly TurnIssue[] = []): TurnEvent => ({ type: "delivered", issues }),
  cancel: (reason = "Enough."): TurnEvent => ({ type: "cancel", reason }),
  refused: { type: "refused" } as TurnEvent,
};

/** Feeds events to a fresh turn; the last step. */
export function turnAfter(events: readonly TurnEvent[], config: Partial<TurnConfig> = {}): TurnStep {
  return events.reduce<TurnStep>(({ state }, event) => stepTurn(state, event), startTurn({ ...CONFIG, ...config }));
}

/** How an effect reads in a table: its type, or the type of the activity it emits. */
export function nameOf(effect: TurnEffect): string {
  if (effect.type === "emit") return `emit ${effect.activity.type}`;
  if (effect.type === "checkpoint") return `checkpoint ${effect.checkpoint}`;
  return effect.type;
}
export const namesOf = ({ effects }: TurnStep) => effects.map(nameOf);

/** The conversation of a turn as short lines. */
export function linesOf(state: TurnState): string[] {
  return state.messages.map(({ role, parts }) => {
    const words = parts.map((part) =>
      "text" in part ? part.text : part.type === "tool_call" ? `call ${part.callId}` : "",
    );
    return `${role}: ${words.join(" | ")}`;
  });
}

export const CODE: ProtocolStep = { kind: "code", language: "js", code: "1 + 1" };

/** Events up to a phase, with the phase's effect outstanding. */
export const TO = {
  before_turn: [],
  prompt: [ANSWER.beforeTurn()],
  before_model: [ANSWER.beforeTurn(), ANSWER.prompt],
  model: [ANSWER.beforeTurn(), ANSWER.prompt],
  tools: [ANSWER.beforeTurn(), ANSWER.prompt, ANSWER.model(call("c1"))],
  code: [ANSWER.beforeTurn(), ANSWER.prompt, ANSWER.interpreted(CODE, text("1 + 1"))],
  after_work: [ANSWER.beforeTurn(), ANSWER.prompt, ANSWER.model(call("c1")), ANSWER.tools([record("c1")])],
  before_completion: [ANSWER.beforeTurn(), ANSWER.prompt, ANSWER.model(text("hi"))],
  synced_after_work: [ANSWER.beforeTurn(), ANSWER.syncedPrompt, ANSWER.model(call("c1")), ANSWER.tools([record("c1")])],
  synced_before_completion: [ANSWER.beforeTurn(), ANSWER.syncedPrompt, ANSWER.model(text("hi"))],
  after_turn: [ANSWER.beforeTurn(), ANSWER.prompt, ANSWER.model(text("hi")), ANSWER.checkpoint()],
  capture: [ANSWER.beforeTurn(), ANSWER.prompt, ANSWER.model(text("hi")), ANSWER.checkpoint(), ANSWER.afterTurn()],
  commit: [
    ANSWER.beforeTurn(),
    ANSWER.prompt,
    ANSWER.model(text("hi")),
    ANSWER.checkpoint(),
    ANSWER.afterTurn(),
    ANSWER.captured(),
  ],
  deliver: [
    ANSWER.beforeTurn(),
    ANSWER.prompt,
    ANSWER.model(text("hi")),
    ANSWER.checkpoint(),
    ANSWER.afterTurn(),
    ANSWER.captured(),
    ANSWER.committed,
  ],
  done: [
    ANSWER.beforeTurn(),
    ANSWER.prompt,
    ANSWER.model(text("hi")),
    ANSWER.checkpoint(),
    ANSWER.afterTurn(),
    ANSWER.captured(),
    ANSWER.committed,
    ANSWER.delivered(),
  ],
  failed: [ANSWER.refused],
} satisfies Record<string, readonly TurnEvent[]>;
export type Place = keyof typeof TO;
export const PLACES = Object.keys(TO) as Place[];

/** How a turn must be configured to get to a place. */
const CONFIGS: { readonly [P in Place]?: Partial<TurnConfig> } = { before_model: { asksBeforeModel: true } };

/** A turn that has come to a place, and what it does with these events there; the last step. */
export function turnAt(place: Place, ...events: readonly TurnEvent[]): TurnStep {
  return turnAfter([...TO[place], ...events], CONFIGS[place]);
}
