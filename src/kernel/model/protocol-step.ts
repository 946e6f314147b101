import type { Part } from "../history/index.js";
import type { Json } from "../json.js";
import type { ToolCall, ToolRecord } from "../tools/index.js";
import type { ModelResponse } from "./model.js";

/** What a protocol makes of an answer: how the turn goes on. */
export type ProtocolStep =
  | {
      readonly kind: "tools";
      readonly calls: readonly ToolCall[];
      readonly brokenArgs: Readonly<Record<string, string>>;
    }
  | { readonly kind: "code"; readonly language: string; readonly code: string }
  | { readonly kind: "finish"; readonly text: string; readonly value?: Json };

/** What running a piece of code came to. */
export interface CodeResult {
  /** What the model reads of it, in order. */
  readonly observations: readonly string[];
  readonly error?: string;
  /** The code ended the turn with this value, or, when it `failed`, with this as what went wrong. */
  readonly terminalFinish?: { readonly value: Json; readonly failed?: boolean };
  readonly toolCalls: readonly ToolRecord[];
  readonly durationMs: number;
}

const NO_BROKEN_ARGS: Readonly<Record<string, string>> = Object.freeze({});

/** Native tool calling: calls are made, an answer without any is the end. */
export function nativeToolStep(response: ModelResponse): ProtocolStep {
  const calls: ToolCall[] = [];
  let text = "";
  for (const part of response.parts) {
    if (part.type === "tool_call") calls.push({ callId: part.callId, toolName: part.toolName, args: part.args });
    else if (part.type === "text") text += part.text;
  }
  if (calls.length === 0) return { kind: "finish", text };
  return { kind: "tools", calls, brokenArgs: response.brokenArgs ?? NO_BROKEN_ARGS };
}

/**
 * An answer as the history keeps it: with exactly the calls that are made of it. Providers refuse a call without a
 * result and a result without a call, and so every later turn.
 */
export function partsWithCalls({ parts }: ModelResponse, step: ProtocolStep): readonly Part[] {
  const calls = step.kind === "tools" ? step.calls : [];
  const made = new Set(calls.map(({ callId }) => callId));
  const kept = parts.filter((part) => part.type !== "tool_call" || made.has(part.callId));
  const written = new Set(kept.map((part) => (part.type === "tool_call" ? part.callId : undefined)));
  const added = calls
    .filter(({ callId }) => !written.has(callId))
    .map((call): Part => ({ type: "tool_call", ...call }));
  return added.length === 0 && kept.length === parts.length ? parts : [...kept, ...added];
}

/** What the model reads after its code ran. */
export function renderCodeResult({ observations, error }: CodeResult): string {
  const lines = error === undefined ? observations : [...observations, `[Code failed]\n${error}`];
  return lines.length === 0 ? "[The code printed nothing]" : lines.join("\n");
}
