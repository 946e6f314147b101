import { checkPromptLayer, isRecord, type Json, type PromptLayer, TroupeError } from "../../kernel/index.js";
import { checkTurnOptions, type ProtocolTurnOptions } from "../../plugin/index.js";
import type { TurnExtras } from "../../session/index.js";

export interface TurnOptions {
  /**
   * The caller's own name for the turn: asked again under the same key, it is the same turn and runs once. Another input
   * under the key is a `turn_key_conflict`.
   */
  readonly key?: string;
  /** One of the runtime's `models`, for this turn only. */
  readonly model?: string;
  /** Laid over what host and session put into the system prompt, for this turn only. */
  readonly prompt?: PromptLayer;
  /** Model calls this turn may make; null for as many as it takes. */
  readonly maxSteps?: number | null;
  /** What single plugins are told at the turn's beginning, by plugin id. */
  readonly pluginInputs?: Readonly<Record<string, Json>>;
  /** For the protocol, this turn only: laid over the session's own options, key by key. */
  readonly protocolOptions?: ProtocolTurnOptions;
  /** Something of the protocol's; it may refuse the turn for it. */
  readonly protocolExtension?: Json;
}

/** What a turn brings along beside its input, checked; an option nobody knows is mostly a spelling mistake. */
export function extrasOf(options: TurnOptions): TurnExtras {
  if (typeof options !== "object" || options === null) throw invalidOption("the options are an object");
  const { key, model, prompt, maxSteps, pluginInputs, protocolOptions, protocolExtension, ...unknown } = options;
  const [stranger] = Object.keys(unknown);
  if (stranger !== undefined) throw invalidOption(`there is no option ${stranger}`);
  if (key !== undefined && (typeof key !== "string" || key === "" || key.length > MAX_KEY_LENGTH))
    throw invalidOption(`key is a string of 1 to ${MAX_KEY_LENGTH} characters`);
  if (model !== undefined && typeof model !== "string") throw invalidOption("model is the name of one of the models");
  if (maxSteps !== undefined && maxSteps !== null && !(Number.isSafeInteger(maxSteps) && maxSteps >= 1))
    throw invalidOption("maxSteps is a whole number from 1, or null");
  if (pluginInputs !== undefined && !isRecord(pluginInputs)) throw invalidOption("pluginInputs is an object");
  return {
    ...(key !== undefined && { key }),
    ...(model !== undefined && { model }),
    ...(prompt !== undefined && { prompt: checkPromptLayer(prompt) }),
    ...(maxSteps !== undefined && { maxSteps }),
    ...(pluginInputs !== undefined && { pluginInputs }),
    ...(protocolOptions !== undefined && { options: checkTurnOptions(protocolOptions) }),
    ...(protocolExtension !== undefined && { extension: protocolExtension }),
  };
}

const MAX_KEY_LENGTH = 256;

function invalidOption(why: string): TroupeError {
  return new TroupeError("invalid_turn_options", `The turn's options cannot be used: ${why}.`);
}
