import type { Clock } from "../../async/index.js";
import type { Message, ModelEvent, ModelRequest } from "../../kernel/index.js";
import { aborted } from "../../kernel/index.js";
import type { Model, ModelSource } from "../boundary/index.js";
import { checkScript, type Script, type ScriptDirectAnswer, type ScriptStep } from "../boundary/index.js";
import { pause } from "../calling/index.js";
import { type CompiledStep, compileStep } from "./scripted-step.js";

const DEFAULT_CHUNK_SIZE = 32;
const ECHO: ScriptDirectAnswer = { text: "{input}" };

/**
 * A model that says what it is told, the same every time: for tests, benchmarks and first steps.
 * Takes a whole script, or the steps of its only turn. Throws `invalid_script` where the script is wrong.
 *
 * @example
 * const troupe = await createTroupe({
 *   model: scriptedModel([
 *     { toolCalls: [{ tool: "weather", args: { city: "Oslo" } }] },
 *     { text: "It is {tool_result}." },
 *   ]),
 * });
 */
export function scriptedModel(script: Script | readonly ScriptStep[]): ModelSource {
  return { kind: "scripted", script: checkScript(isSteps(script) ? { turns: [script] } : script) };
}

/** The model of a host that names none: repeats what the user said. */
export const defaultModel: ModelSource = scriptedModel([{ text: "You said: {input}" }]);

/**
 * The running form of a script.
 *
 * @example
 * const model = createScriptedModel({ turns: [[{ text: "Hello" }]] }, clock);
 * for await (const event of model.stream(request, signal)) console.log(event);
 */
export function createScriptedModel(script: Script, clock: Clock): Model {
  const { turns, direct = [], chunkSize = DEFAULT_CHUNK_SIZE } = checkScript(script);
  const compiled = turns.map((steps) => steps.map((step) => compileStep(step, chunkSize)));
  const done = compileStep({ text: "done" }, chunkSize);
  const answers = [...direct, ECHO].map(({ source, ...step }) => ({ source, step: compileStep(step, chunkSize) }));
  const attempts = new Attempts();

  const stepOf = (request: ModelRequest): CompiledStep => {
    const { direct: call, step } = request;
    if (call) return answers.find(({ source = call.source }) => source === call.source)?.step ?? done;
    const turn = compiled.length === 1 ? 0 : turnNumber(request) % compiled.length;
    return compiled[turn]?.[step] ?? done;
  };

  return {
    id: "scripted",
    stream(request, signal) {
      const step = stepOf(request);
      return play(step, { request, signal, clock, fails: attempts.fails(step, request) });
    },
  };
}

interface Performance {
  readonly request: ModelRequest;
  readonly signal: AbortSignal;
  readonly clock: Clock;
  readonly fails: boolean;
}

async function* play(step: CompiledStep, { request, signal, clock, fails }: Performance): AsyncGenerator<ModelEvent> {
  if (signal.aborted) throw aborted(signal);
  if (step.delayMs > 0) await pause(clock, step.delayMs, signal);
  const deltas = step.deltas(request);
  const heard = fails ? deltas.slice(0, step.failure?.afterChunks ?? 0) : deltas;
  for (const [index, delta] of heard.entries()) {
    if (index > 0 && step.chunkDelayMs > 0) await pause(clock, step.chunkDelayMs, signal);
    if (signal.aborted) throw aborted(signal);
    yield delta;
  }
  if (signal.aborted) throw aborted(signal);
  if (fails && step.failure) throw step.failure.error();
  // Not `yield*`, which awaits every item of a plain list once more.
  for (const call of step.toolCalls(request)) yield call;
  yield step.finish(request, deltas);
}

/** Counts the attempts of steps that fail only a few times; forgets a step once it succeeds. */
class Attempts {
  readonly #made = new Map<string, number>();

  fails(step: CompiledStep, request: ModelRequest): boolean {
    if (!step.failure) return false;
    const { attempts } = step.failure;
    if (attempts === undefined) return true;
    const key = JSON.stringify([request.sessionId, request.turnId, request.step, request.direct?.source]);
    const made = this.#made.get(key) ?? 0;
    if (made >= attempts) this.#made.delete(key);
    else this.#made.set(key, made + 1);
    return made < attempts;
  }
}

/** Which turn of the session this is, counted by inputs. Reads the whole history: called only when turns differ. */
function turnNumber({ history, turn }: ModelRequest): number {
  let inputs = 0;
  for (const { origin } of history) if (begins(origin)) inputs++;
  for (const { origin } of turn) if (begins(origin)) inputs++;
  return Math.max(0, inputs - 1);
}

/** What was said into a running turn does not begin one. */
function begins(origin: Message["origin"]): boolean {
  return origin?.kind === "turn_input" && origin.inputId === undefined;
}

function isSteps(script: Script | readonly ScriptStep[]): script is readonly ScriptStep[] {
  return Array.isArray(script);
}
