import {
  type AfterToolDirective,
  asTroupeError,
  type BeforeToolDirective,
  composeAfterToolCall,
  composeBeforeToolCall,
  type Json,
  type Owned,
  renderToolOutput,
  type ToolCall,
  type ToolOutput,
  TroupeError,
} from "../../../kernel/index.js";
import { executeTool } from "../../../tools/index.js";
import type { LoneAnswer } from "../../calls/index.js";
import { performAtTool } from "../../host-services/index.js";
import type { TurnCatalog } from "../../protocol/index.js";
import type { TurnSession } from "../turn-session.js";

interface LoneCall {
  readonly tool: string;
  readonly args: Json;
  readonly callId: string;
  readonly signal: AbortSignal;
}

/**
 * Runs a tool of the session without a turn and without a model: one that a turn could have now, with the hooks around it.
 * What those say beside their verdict is not heard, as there is no turn to say it to. What somebody would have to approve,
 * or what answers later, is not run so.
 */
export async function runToolAlone(session: TurnSession, asked: LoneCall): Promise<LoneAnswer> {
  const { catalog, protocol, stored } = session;
  const { tool, args, callId, signal } = asked;
  const facts = { sessionId: session.id, turnId: callId, turnIndex: stored.turnIndex };
  try {
    const tools = await catalog.resolve(facts, protocol.turnOptions, signal);
    const lone = new LoneTool({ session, facts, tools, signal });
    return answerOf(await lone.run({ callId, toolName: tool, args }));
  } catch (thrown) {
    const { code, message } = asTroupeError(thrown, "tool_failed");
    return { status: "failed", code, message, final: code === "monitor_tool_failed" };
  }
}

interface LoneParts {
  readonly session: TurnSession;
  readonly facts: { readonly sessionId: string; readonly turnId: string; readonly turnIndex: number };
  readonly tools: TurnCatalog;
  readonly signal: AbortSignal;
}

class LoneTool {
  readonly #parts: LoneParts;

  constructor(parts: LoneParts) {
    this.#parts = parts;
  }

  async run(asked: ToolCall): Promise<ToolOutput> {
    const { session, facts, tools, signal } = this.#parts;
    const { clock, homes, checks, deadlines, limits } = session.services;
    const { toolName } = asked;
    const tool = tools.get(toolName);
    if (tool?.approval !== undefined) throw unfit(toolName, "has to be approved");
    const before = tool === undefined ? { call: asked } : await this.#before(asked, tool.argumentProjection);
    const { call } = before;
    if (before.decided !== undefined) return before.decided;
    const execute = () =>
      executeTool({ registry: tools, homes, checks, deadlines, call, hidden: NOTHING, signal, ...facts });
    const started = clock.now();
    const { output, pending, ran } =
      tool?.maxConcurrent === undefined
        ? await execute()
        : await limits.within({ toolId: tool.spec.id ?? toolName, maxConcurrent: tool.maxConcurrent, signal }, execute);
    if (pending !== undefined) throw unfit(toolName, "answers later");
    return ran ? this.#after(call, output, clock.now() - started) : output;
  }

  async #before(
    call: ToolCall,
    argumentProjection: Json | undefined,
  ): Promise<{ readonly call: ToolCall; readonly decided?: ToolOutput | undefined }> {
    const { session, facts, signal } = this.#parts;
    const { toolName, args: first } = call;
    if (!session.hooks.has("before_tool_call", toolName)) return { call };
    const around = session.hooks.around(toolName, {
      site: "before_tool_call",
      first,
      facts: (args) => ({ ...facts, call: { ...call, args }, argumentProjection }),
      options: { signal },
    });
    const { demands, output, args } = await around.until(
      composeBeforeToolCall(first, around.count, (n, now, { second, end }) =>
        this.#performed(around.ask(n, now, end), second),
      ),
    );
    if (demands.length > 0 && output === undefined) throw unfit(toolName, "has to be approved");
    return { call: { ...call, args }, decided: output };
  }

  async #after(call: ToolCall, output: ToolOutput, durationMs: number): Promise<ToolOutput> {
    const { session, facts, signal } = this.#parts;
    const { toolName } = call;
    if (!session.hooks.has("after_tool_call", toolName) || output.status === "cancelled") return output;
    const around = session.hooks.around<"after_tool_call", ToolOutput>(toolName, {
      site: "after_tool_call",
      first: output,
      facts: (now) => ({ ...facts, call, output: now, durationMs }),
      options: { signal },
    });
    const verdict = await around.until(
      composeAfterToolCall(output, around.count, (n, now, { second, end }) =>
        this.#performed(around.ask(n, now, end), second),
      ),
    );
    return verdict.output ?? output;
  }

  async #performed<D extends BeforeToolDirective | AfterToolDirective>(
    asked: readonly Owned<D>[] | Promise<readonly Owned<D>[]>,
    secondLook: boolean,
  ): Promise<readonly Owned<D>[]> {
    const directives = await asked;
    return secondLook ? directives : performAtTool(this.#parts.session, directives);
  }
}

const NOTHING: ReadonlySet<string> = new Set();

function answerOf(output: ToolOutput): LoneAnswer {
  if (output.status === "success") return { status: "answered", text: renderToolOutput(output) };
  if (output.status === "cancelled")
    return { status: "failed", code: "cancelled", message: output.message, final: false };
  const { code, message } = output.failure;
  return { status: "failed", code, message, final: false };
}

function unfit(tool: string, why: string): TroupeError {
  return new TroupeError("monitor_tool_failed", `The tool ${tool} ${why}, which nobody does without a model.`);
}
