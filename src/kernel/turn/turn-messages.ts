import type { TurnDirectives } from "../directives/index.js";
import type { Message, Origin, Part, Role } from "../history/index.js";
import { partsOfInput } from "./pending-inputs.js";
import { change, tell } from "./turn-effects.js";
import type { CheckpointInput, TurnStep } from "./turn-state.js";

// What is said in a turn: every message it adds to the history passes `append`.

export function append(
  step: TurnStep,
  role: Role,
  parts: readonly Part[],
  from: { readonly origin?: Origin; readonly route?: string } = {},
): TurnStep {
  const { config, messages } = step.state;
  const message: Message = { id: `${config.turnId}.${messages.length}`, role, parts, ...from };
  return change(step, { messages: [...messages, message] });
}

/** What the host put into the running turn: plain user messages, before what plugins say to it. */
export function acceptInputs(before: TurnStep, inputs: readonly CheckpointInput[]): TurnStep {
  if (inputs.length === 0) return before;
  const { turnId } = before.state.config;
  const said = inputs.reduce((step, input) => {
    const origin: Origin = { kind: "turn_input", turnId, inputId: input.id };
    return append(step, "user", partsOfInput(input), { origin });
  }, before);
  return tell(said, { type: "inputs_accepted", inputIds: inputs.map(({ id }) => id) });
}

export function applyDirectives(before: TurnStep, { messages, events }: TurnDirectives): TurnStep {
  const told = events.reduce(
    (step, { pluginId, value }) => tell(step, { type: "plugin_event", pluginId, event: value }),
    before,
  );
  if (messages.length === 0) return told;
  const said = messages.reduce((step, { pluginId, value: { role, text } }) => {
    return append(step, role, [{ type: "text", text }], { origin: { kind: "plugin", pluginId } });
  }, told);
  return tell(said, { type: "messages_injected", pluginIds: messages.map(({ pluginId }) => pluginId) });
}
