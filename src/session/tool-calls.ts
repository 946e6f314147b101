import {
  type Activity,
  type AfterToolDirective,
  asTroupeError,
  type BeforeToolDirective,
  foldTurnDirectives,
  type Json,
  type Owned,
  strongerTerminal,
  type ToolCall,
  type ToolOutput,
  type ToolRecord,
  type ToolTerminal,
  type TurnDirective,
  type TurnDirectives,
  toolFailure,
} from "../kernel/index.js";
import type { TurnFacts } from "../plugin/index.js";
import { executeTool } from "../tools/index.js";
import { readDirectives } from "./read-answers.js";
import type { Session } from "./session.js";

export interface ToolBatch {
  readonly session: Session;
  readonly facts: TurnFacts;
  readonly calls: readonly ToolCall[];
  readonly brokenArgs: Readonly<Record<string, string>>;
  readonly signal: AbortSignal;
  readonly emit: (activity: Activity) => void;
}

export interface ToolBatchResult {
  readonly records: readonly ToolRecord[];
  /** What tool hooks asked of the turn: messages for the next model call, events, an abort. */
  readonly directives: TurnDirectives;
}

/** Prepares the calls one after another in call order, runs what may run at once, returns the results in call order. */
export async function runToolBatch(batch: ToolBatch): Promise<ToolBatchResult> {
  const run = new BatchRun(batch);
  return run.run();
}

type Prepared = { readonly call: ToolCall; readonly decided: ToolOutput | undefined };

class BatchRun {
  readonly #batch: ToolBatch;
  /** Ends the other calls when a hook aborts the turn; a call alone has no others. */
  readonly #stop: AbortController | undefined;
  readonly #signal: AbortSignal;
  readonly #directives: Owned<TurnDirective>[] = [];
  #aborted = false;

  constructor(batch: ToolBatch) {
    this.#batch = batch;
    const { hooks } = batch.session;
    const mayAbort = batch.calls.length > 1 && (hooks.has("before_tool_call") || hooks.has("after_tool_call"));
    this.#stop = mayAbort ? new AbortController() : undefined;
    this.#signal = this.#stop === undefined ? batch.signal : AbortSignal.any([batch.signal, this.#stop.signal]);
  }

  async run(): Promise<ToolBatchResult> {
    const prepared: Prepared[] = [];
    for (const call of this.#batch.calls) prepared.push(await this.#prepare(call));
    const records = await Promise.all(prepared.map((item) => this.#finish(item)));
    return { records, directives: foldTurnDirectives(this.#directives) };
  }

  async #prepare(call: ToolCall): Promise<Prepared> {
    const { emit, brokenArgs, session } = this.#batch;
    emit({ type: "tool_call_started", callId: call.callId, toolName: call.toolName, args: call.args });
    const broken = brokenArgs[call.callId];
    if (broken !== undefined) {
      const message = `The arguments of ${call.toolName} are not valid JSON. Call it again with a JSON object.`;
      return { call, decided: toolFailure("invalid_request", "invalid_tool_args", message) };
    }
    const known = session.services.registry.get(call.toolName) !== undefined && !session.hiddenTools.has(call.toolName);
    // A tool the model cannot have never reaches a hook.
    if (!known || !session.hooks.has("before_tool_call")) return { call, decided: undefined };
    try {
      return await this.#inspect(call);
    } catch (error) {
      const { message } = asTroupeError(error, "hook_failed");
      return { call, decided: toolFailure("internal", "before_tool_call_failed", message) };
    }
  }

  /** before_tool_call hooks in order: each sees the arguments as the ones before left them. */
  async #inspect(original: ToolCall): Promise<Prepared> {
    let args: Json = original.args;
    let terminal: ToolTerminal | undefined;
    const current = (): ToolCall => ({ ...original, args });
    await this.#batch.session.hooks.each(
      "before_tool_call",
      () => ({ ...this.#batch.facts, call: current() }),
      (answer, pluginId) => {
        for (const owned of readDirectives(answer, "before_tool_call", pluginId)) {
          const directive: BeforeToolDirective = owned.value;
          if (directive.kind === "replace_tool_args") args = directive.args;
          else if (directive.kind === "emit_events") this.#directives.push({ pluginId, value: directive });
          else terminal = strongerTerminal(terminal, { pluginId, value: directive });
        }
      },
      { signal: this.#signal },
    );
    return { call: current(), decided: terminal === undefined ? undefined : this.#decide(terminal) };
  }

  async #finish({ call, decided }: Prepared): Promise<ToolRecord> {
    const { session, facts, emit } = this.#batch;
    const started = performance.now();
    let output = decided;
    if (output === undefined && this.#aborted) output = CANCELLED;
    if (output === undefined) {
      const { registry, homes } = session.services;
      const executed = await executeTool({
        registry,
        homes,
        call,
        hidden: session.hiddenTools,
        sessionId: facts.sessionId,
        turnId: facts.turnId,
        signal: this.#signal,
      });
      output = await this.#review(call, executed.output, performance.now() - started);
    }
    const durationMs = performance.now() - started;
    emit({ type: "tool_call_finished", callId: call.callId, toolName: call.toolName, output, durationMs });
    return { ...call, output, durationMs };
  }

  /** after_tool_call hooks: a success may replace the result once, a denial or abort always does. */
  async #review(call: ToolCall, output: ToolOutput, durationMs: number): Promise<ToolOutput> {
    const { session, facts } = this.#batch;
    if (!session.hooks.has("after_tool_call") || output.status === "cancelled") return output;
    let terminal: ToolTerminal | undefined;
    try {
      await session.hooks.each(
        "after_tool_call",
        () => ({ ...facts, call, output, durationMs }),
        (answer, pluginId) => {
          for (const owned of readDirectives(answer, "after_tool_call", pluginId)) {
            const directive: AfterToolDirective = owned.value;
            if (directive.kind === "short_circuit_tool")
              terminal = strongerTerminal(terminal, { pluginId, value: directive });
            else if (directive.kind === "abort_turn")
              terminal = strongerTerminal(terminal, { pluginId, value: directive });
            else this.#directives.push({ pluginId, value: directive });
          }
        },
        { signal: this.#signal },
      );
    } catch (error) {
      return toolFailure("internal", "after_tool_call_failed", asTroupeError(error, "hook_failed").message);
    }
    return terminal === undefined ? output : this.#decide(terminal);
  }

  /** The output a terminal stands for. An abort ends the turn, and with it the batch's other calls. */
  #decide({ pluginId, value }: ToolTerminal): ToolOutput {
    if (value.kind === "short_circuit_tool") return value.output;
    this.#aborted = true;
    this.#directives.push({ pluginId, value });
    this.#stop?.abort();
    return toolFailure("permission_denied", value.code, value.message);
  }
}

const CANCELLED: ToolOutput = { status: "cancelled", message: "The turn was aborted before this call ran." };
