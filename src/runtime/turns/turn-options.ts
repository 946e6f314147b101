import {
  type CallSettings,
  type CheckpointKind,
  callSettingsProblem,
  checkPromptLayer,
  definedOnly,
  type FieldsOf,
  invalidOptions,
  isRecord,
  type Json,
  type JsonObject,
  messageOf,
  type PromptLayer,
  refusal,
  unknownField,
} from "../../kernel/index.js";
import {
  checkTurnOptions,
  compileSchema,
  isStandardSchema,
  jsonSchemaOf,
  type ProtocolTurnOptions,
  type Schema,
} from "../../plugin/index.js";
import type { TurnExtras } from "../../session/index.js";
import { turnLimitOf, turnLimitProblem } from "../options/index.js";

/** `modelOptions`, `modelRetry` and `fallbackModels` are laid over what runtime, agent and session say. */
export interface TurnOptions extends CallSettings {
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
  /**
   * How long this turn may take, in milliseconds from when it begins; null for as long as it does. Past it the turn ends
   * with `deadline` and the code `turn_deadline`. It counts on over crashes, and stands still while the turn waits for
   * nothing but people.
   */
  readonly deadlineMs?: number | null;
  /** The time counts also while the turn waits for people. */
  readonly deadlineCountsWaiting?: boolean;
  /** What was shown of the answer the deadline comes in is kept, as by `session.cancel`. Default true. */
  readonly deadlineKeepsPartial?: boolean;
  /** What single plugins are told at the turn's beginning, by plugin id. */
  readonly pluginInputs?: Readonly<Record<string, Json>>;
  /** For the protocol, this turn only: laid over the session's own options, key by key. */
  readonly protocolOptions?: ProtocolTurnOptions;
  /** Something of the protocol's; it may refuse the turn for it. */
  readonly protocolExtension?: Json;
  /**
   * The form the answer is to have: any Standard Schema, or a JSON Schema. `result.value` is the answer in this form.
   *
   * @example
   * const { value } = await session.turn("How warm is it?", { output: z.object({ celsius: z.number() }) });
   */
  readonly output?: Schema;
}

const TURN_OPTIONS: FieldsOf<TurnOptions> = {
  key: true,
  model: true,
  modelOptions: true,
  modelRetry: true,
  fallbackModels: true,
  prompt: true,
  maxSteps: true,
  deadlineMs: true,
  deadlineCountsWaiting: true,
  deadlineKeepsPartial: true,
  pluginInputs: true,
  protocolOptions: true,
  protocolExtension: true,
  output: true,
};

const CANCELLING = "turn.cancel() ends it, and session.cancel() whichever runs.";
const ELSEWHERE: Readonly<Record<string, string>> = {
  signal: CANCELLING,
  abortSignal: CANCELLING,
  agent: "session.setAgent(name) gives its session another one.",
  budget: "session.setBudget(budget) is what its session may spend.",
  tools: "modelOptions: { activeTools: [names] } gives it some of its session's.",
  temperature: "It is one of its modelOptions.",
  maxTokens: "It is one of its modelOptions: maxOutputTokens.",
  instructions: "session.configure({ instructions }) changes them, and prompt adds to them for one turn.",
};

/** What a turn brings along beside its input, checked; an option nobody knows is mostly a spelling mistake. */
export function extrasOf(options: TurnOptions): TurnExtras {
  if (typeof options !== "object" || options === null) throw invalidOption("the options are an object");
  const unknown = unknownField(options, TURN_OPTIONS, "a turn", "option", ELSEWHERE);
  if (unknown !== undefined) throw invalidOption(unknown);
  const { key, model, prompt, maxSteps, pluginInputs, protocolOptions, protocolExtension, output } = options;
  const { modelOptions, modelRetry, fallbackModels } = options;
  const calling: CallSettings = definedOnly({ modelOptions, modelRetry, fallbackModels });
  const badKey = keyProblem(key);
  if (badKey !== undefined) throw invalidOption(badKey);
  if (model !== undefined && typeof model !== "string") throw invalidOption("model is the name of one of the models");
  const problem = callSettingsProblem(calling);
  if (problem !== undefined) throw invalidOption(problem);
  if (maxSteps !== undefined && maxSteps !== null && !(Number.isSafeInteger(maxSteps) && maxSteps >= 1))
    throw invalidOption("maxSteps is a whole number from 1, or null");
  const limitProblem = turnLimitProblem(options);
  if (limitProblem !== undefined) throw invalidOption(limitProblem);
  const limit = turnLimitOf(options);
  if (pluginInputs !== undefined && !isRecord(pluginInputs)) throw invalidOption("pluginInputs is an object");
  return {
    ...(key !== undefined && { key }),
    ...(model !== undefined && { model }),
    ...(Object.keys(calling).length > 0 && { calling }),
    ...(prompt !== undefined && { prompt: checkPromptLayer(prompt) }),
    ...(maxSteps !== undefined && { maxSteps }),
    ...(Object.keys(limit).length > 0 && { limit }),
    ...(pluginInputs !== undefined && { pluginInputs }),
    ...(protocolOptions !== undefined && { options: checkTurnOptions(protocolOptions) }),
    ...(protocolExtension !== undefined && { extension: protocolExtension }),
    ...(output !== undefined && { output: { schema: outputSchema(output) } }),
  };
}

/** What crosses to the session's worker: the schema's JSON form. */
function outputSchema(output: Schema): JsonObject {
  if (!isStandardSchema(output) && !isRecord(output))
    throw invalidOption("output is a Standard Schema, such as one of zod, or a JSON Schema");
  try {
    const schema = jsonSchemaOf(output, "the output of a turn");
    compileSchema(schema, "output");
    return schema;
  } catch (error) {
    throw invalidOption(messageOf(error).replace(/\.$/, ""));
  }
}

const MAX_KEY_LENGTH = 256;

function keyProblem(key: unknown): string | undefined {
  if (key === undefined || (typeof key === "string" && key !== "" && key.length <= MAX_KEY_LENGTH)) return undefined;
  return `key is a string of 1 to ${MAX_KEY_LENGTH} characters`;
}

const invalidOption = refusal("invalid_turn_options", "The turn's options cannot be used");

/** How something is said into a running turn. */
export interface SteerOptions {
  /** The caller's own name for it. */
  readonly key?: string;
  /** `after_work` (default): from the next checkpoint on. `before_completion`: when the model has its answer. */
  readonly boundary?: CheckpointKind;
}

const STEER_OPTIONS: FieldsOf<SteerOptions> = { key: true, boundary: true };
const QUEUE_OPTIONS: FieldsOf<Pick<SteerOptions, "key">> = { key: true };

/** How an input that waits is named and when it is taken, checked. `steers`: it may say at which checkpoint. */
export function inputOptionsOf(options: SteerOptions, { steers }: { readonly steers: boolean }): SteerOptions {
  if (!isRecord(options)) throw invalidOptions("the options of an input are an object");
  const unknown = unknownField(options, steers ? STEER_OPTIONS : QUEUE_OPTIONS, "an input", "option");
  if (unknown !== undefined) throw invalidOptions(unknown);
  const { key, boundary } = options;
  const problem = keyProblem(key);
  if (problem !== undefined) throw invalidOptions(`for an input, ${problem}`);
  if (boundary !== undefined && boundary !== "after_work" && boundary !== "before_completion")
    throw invalidOptions('the boundary of an input is "after_work" or "before_completion"');
  return options;
}

/** How long somebody waits for what a turn comes to. */
export interface TurnResultOptions {
  /** Ends the waiting, not the turn. */
  readonly signal?: AbortSignal | undefined;
}

const RESULT_OPTIONS: FieldsOf<TurnResultOptions> = { signal: true };

export function resultOptionsOf(options: TurnResultOptions): TurnResultOptions {
  if (!isRecord(options)) throw invalidOptions("the options of turnResult are an object");
  const unknown = unknownField(options, RESULT_OPTIONS, "turnResult", "option");
  if (unknown !== undefined) throw invalidOptions(unknown);
  const { signal } = options;
  if (signal !== undefined && !(signal instanceof AbortSignal))
    throw invalidOptions("the signal of turnResult must be an AbortSignal");
  return options;
}
