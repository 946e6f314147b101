import type { Json, JsonObject } from "../json.js";
import { type ModelOptions, mergeModelOptions } from "../model/index.js";
import type { SessionCreateRequest } from "../session/index.js";
import type { ApprovalDemand, ToolOutput } from "../tools/index.js";

/** A message a plugin puts into the conversation. Assistant messages are the model's alone. */
export interface EnqueuedMessage {
  readonly role: "user" | "system";
  readonly text: string;
}

/** Something a plugin tells the host: delivered as a `plugin_event` activity. */
export interface PluginEvent {
  readonly name: string;
  readonly payload?: Json;
}

export interface AbortTurn {
  readonly kind: "abort_turn";
  readonly code: string;
  readonly message: string;
}
export interface EnqueueMessages {
  readonly kind: "enqueue_messages";
  readonly messages: readonly EnqueuedMessage[];
}
export interface ReplaceToolArgs {
  readonly kind: "replace_tool_args";
  readonly args: Json;
}
export interface ShortCircuitTool {
  readonly kind: "short_circuit_tool";
  readonly output: ToolOutput;
}
/** Somebody outside must say yes before the tool runs. No later plugin can undo it; a denial needs no asking. */
export interface RequireApproval {
  readonly kind: "require_approval";
  readonly demand: ApprovalDemand;
}
/** How the next model call of the turn is made, over everything else that was said of it; the one behind it is not concerned. */
export interface NextModelCall {
  readonly kind: "next_model_call";
  readonly options: ModelOptions;
}
/** The turn is asked with this text in the place of its input's. */
export interface ReplaceInput {
  readonly kind: "replace_input";
  readonly text: string;
}
export interface EmitEvents {
  readonly kind: "emit_events";
  readonly events: readonly PluginEvent[];
}

export interface CreateSession {
  readonly kind: "create_session";
  readonly request: SessionCreateRequest;
}
export interface EmitTrace {
  readonly kind: "emit_trace";
  readonly name: string;
  readonly payload?: Json;
  readonly context?: JsonObject;
}
/** Known so that it can be refused in so many words: sessions hand over by frames. */
export interface HandoffSession {
  readonly kind: "handoff_session";
  readonly sessionId: string;
}

/** What a hook may ask of the runtime: data, never an action of its own. */
export type Directive =
  | AbortTurn
  | EnqueueMessages
  | NextModelCall
  | ReplaceInput
  | CreateSession
  | HandoffSession
  | ReplaceToolArgs
  | ShortCircuitTool
  | RequireApproval
  | EmitEvents
  | EmitTrace;

/** Allowed everywhere, and done at once by whoever asked the hook: they are in no fold. */
type Immediate = CreateSession | EmitTrace;

export type TurnDirective = AbortTurn | EnqueueMessages | NextModelCall | EmitEvents | Immediate;
/** Of a hook that says beforehand that it may replace the input. */
export type BeforeTurnDirective = TurnDirective | ReplaceInput;
export type AfterTurnDirective = EnqueueMessages | EmitEvents | Immediate;
export type BeforeToolDirective =
  | AbortTurn
  | ReplaceToolArgs
  | ShortCircuitTool
  | RequireApproval
  | EmitEvents
  | Immediate;
export type AfterToolDirective = AbortTurn | EnqueueMessages | ShortCircuitTool | EmitEvents | Immediate;

/** A value together with the plugin it came from. */
export interface Owned<T> {
  readonly pluginId: string;
  readonly value: T;
}

/** Turn-level directives of one hook site, folded: the last abort wins, the rest keeps its order. */
export interface TurnDirectives {
  readonly abort: Owned<AbortTurn> | undefined;
  readonly messages: readonly Owned<EnqueuedMessage>[];
  readonly events: readonly Owned<PluginEvent>[];
  /** Of the next model call; of several plugins the later is the stronger. */
  readonly nextCall?: ModelOptions;
  /** The text of the turn's input, when hooks made another of it; of several the last one's. */
  readonly input?: string;
}

export const NO_DIRECTIVES: TurnDirectives = Object.freeze({ abort: undefined, messages: [], events: [] });

export function foldTurnDirectives(directives: readonly Owned<BeforeTurnDirective>[]): TurnDirectives {
  if (directives.length === 0) return NO_DIRECTIVES;
  let abort: Owned<AbortTurn> | undefined;
  const messages: Owned<EnqueuedMessage>[] = [];
  const events: Owned<PluginEvent>[] = [];
  let nextCall: ModelOptions | undefined;
  let input: string | undefined;
  for (const { pluginId, value } of directives) {
    switch (value.kind) {
      case "abort_turn":
        abort = { pluginId, value };
        break;
      case "enqueue_messages":
        for (const message of value.messages) messages.push({ pluginId, value: message });
        break;
      case "next_model_call":
        nextCall = mergeModelOptions([nextCall, value.options]);
        break;
      case "replace_input":
        input = value.text;
        break;
      case "emit_events":
        for (const event of value.events) events.push({ pluginId, value: event });
        break;
      case "create_session":
      case "emit_trace":
        break;
    }
  }
  return { abort, messages, events, ...(nextCall && { nextCall }), ...(input !== undefined && { input }) };
}
