import { type ToolCall, turnIdOf } from "../../kernel/index.js";
import type { HookFacts, HookKind } from "../../plugin/index.js";
import type { CaptureMode, HookCall } from "./plugin-calls.js";

/**
 * How a hook's facts cross the lane: their values in a fixed order, without the names. Cloning an object between threads
 * costs mostly its keys; the plugin's thread knows them already, and the ids of session and turn too.
 */
const FIELDS: { readonly [K in HookKind]: readonly Exclude<keyof HookFacts[K], "sessionId" | "turnId">[] } = {
  context_transform: [
    "turnIndex",
    "input",
    "pluginInput",
    "messageCount",
    "promptTokens",
    "maxContextTokens",
    "prepared",
  ],
  before_turn: ["turnIndex", "input", "pluginInput", "messageCount"],
  tool_catalog_contributor: ["turnIndex", "tools", "hiddenTools", "subagent", "extensions"],
  prompt_contributor: ["turnIndex", "input", "pluginInput", "tools"],
  assistant_stream: ["turnIndex", "step", "blockId", "chunk"],
  assistant_response: ["turnIndex", "step", "response"],
  assistant_prose_projector: ["turnIndex", "step", "text"],
  stream_finished: ["turnIndex", "step", "reason"],
  before_tool_call: ["turnIndex", "call", "argumentProjection"],
  after_tool_call: ["turnIndex", "call", "output", "durationMs"],
  tool_result_projector: ["turnIndex", "call", "output", "durationMs"],
  checkpoint: ["turnIndex", "checkpoint", "step"],
  after_turn: ["turnIndex", "turn"],
  turn_finalized: ["turnIndex", "turn"],
  turn_persisted: ["turnIndex", "turn", "revision"],
  session_restored: ["turnIndex", "fresh"],
  session_config_mutator: ["previous", "current", "config"],
  session_config_changed: ["previous", "current"],
  context_compactor: ["turnIndex", "messageCount", "maxContextTokens", "instructions"],
};

/** Kinds that do not belong to a turn. */
const OUTSIDE_TURNS: readonly HookKind[] = [
  "session_restored",
  "session_config_mutator",
  "session_config_changed",
  "context_compactor",
];

/** Hook kinds by number: a small integer crosses for less than a name. */
const KINDS = Object.keys(FIELDS) as readonly HookKind[];
const KIND_NUMBERS: ReadonlyMap<HookKind, number> = new Map(KINDS.map((kind, number) => [kind, number]));
/** A plugin may have several hooks of a kind; which one it is stands above the kind's number. */
const NTH = 64;

/** Which hook a call is for. */
export function hookOf(number: number): { kind: HookKind; nth: number } {
  return { kind: KINDS[number % NTH] as HookKind, nth: Math.trunc(number / NTH) };
}

/** A hook call as it crosses. The kinds around tool calls are written out: they are the hot ones, and a literal is quickest. */
export function packHook(
  session: number,
  { kind, nth }: { readonly kind: HookKind; readonly nth: number },
  capture: CaptureMode,
  facts: object,
): HookCall {
  const number = (KIND_NUMBERS.get(kind) as number) + nth * NTH;
  if (kind === "before_tool_call") {
    const { turnIndex, call, argumentProjection } = facts as HookFacts["before_tool_call"];
    const { callId, toolName, args } = call;
    if (argumentProjection === undefined) return [session, number, capture, turnIndex, callId, toolName, args];
    return [session, number, capture, turnIndex, callId, toolName, args, argumentProjection];
  }
  const payload: [number, number, CaptureMode, ...unknown[]] = [session, number, capture];
  for (const field of FIELDS[kind] as readonly string[]) {
    const value = (facts as Record<string, unknown>)[field];
    if (field !== "call") {
      payload.push(value);
      continue;
    }
    const { callId, toolName, args } = value as ToolCall;
    payload.push(callId, toolName, args);
  }
  return payload;
}

/** Writes a call's facts onto a hook's context. */
export function unpackFacts(target: object, kind: HookKind, sessionId: string, payload: HookCall): void {
  const context = target as Record<string, unknown>;
  context.sessionId = sessionId;
  let at = 3;
  for (const field of FIELDS[kind] as readonly string[]) {
    if (field === "call") context.call = { callId: payload[at++], toolName: payload[at++], args: payload[at++] };
    else context[field] = payload[at++];
  }
  if (!OUTSIDE_TURNS.includes(kind)) context.turnId = turnIdOf(context.turnIndex as number);
}

/** Names a hook call within its turn, in every life of the turn alike; undefined for one that no turn repeats. */
export function placeOf(
  pluginId: string,
  { kind, nth }: { readonly kind: HookKind; readonly nth: number },
  facts: object,
): string | undefined {
  if (OUTSIDE_TURNS.includes(kind) || kind === "turn_persisted") return undefined;
  const { call, checkpoint, step } = facts as Partial<HookFacts["before_tool_call"] & HookFacts["checkpoint"]>;
  const where = call?.callId ?? (checkpoint === undefined ? "" : `${checkpoint}.${step}`);
  return `${kind}:${pluginId}:${nth}:${where}`;
}
