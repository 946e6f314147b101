import type { TurnDirectives } from "./directives.js";
import type { Message, Origin, Part, Role } from "./messages.js";
import { partsOfInput } from "./pending-inputs.js";
import { emit } from "./turn-effects.js";
import type { CheckpointInput, TurnEffect, TurnState } from "./turn-state.js";

// What is said in a turn: every message it adds to the history passes `append`.

export function append(
  state: TurnState,
  role: Role,
  parts: readonly Part[],
  origin?: Origin,
  route?: string,
): TurnState {
  const id = `${state.config.turnId}.${state.messages.length}`;
  const message: Message = {
    id,
    role,
    parts,
    ...(origin !== undefined && { origin }),
    ...(route !== undefined && { route }),
  };
  return { ...state, messages: [...state.messages, message] };
}

/** What the host put into the running turn: plain user messages, before what plugins say to it. */
export function acceptInputs(
  before: TurnState,
  inputs: readonly CheckpointInput[],
): { state: TurnState; effects: TurnEffect[] } {
  if (inputs.length === 0) return { state: before, effects: [] };
  let state = before;
  for (const input of inputs) {
    const origin: Origin = { kind: "turn_input", turnId: before.config.turnId, inputId: input.id };
    state = append(state, "user", partsOfInput(input), origin);
  }
  return { state, effects: [emit({ type: "inputs_accepted", inputIds: inputs.map(({ id }) => id) })] };
}

export function applyDirectives(
  state: TurnState,
  { messages, events }: TurnDirectives,
): { state: TurnState; effects: TurnEffect[] } {
  const effects: TurnEffect[] = events.map(({ pluginId, value }) =>
    emit({ type: "plugin_event", pluginId, event: value }),
  );
  if (messages.length === 0) return { state, effects };
  let next = state;
  for (const { pluginId, value } of messages) {
    next = append(next, value.role, [{ type: "text", text: value.text }], { kind: "plugin", pluginId });
  }
  effects.push(emit({ type: "messages_injected", pluginIds: messages.map(({ pluginId }) => pluginId) }));
  return { state: next, effects };
}
