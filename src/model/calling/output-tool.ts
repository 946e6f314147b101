import type { JsonObject, ModelEvent, ModelRequest, ToolSpec } from "../../kernel/index.js";
import type { Model, ReportReplayDrops } from "../boundary/index.js";

const NAME = "final_answer";

/**
 * Asks a model for an answer in the form a turn asks for. One that has no mode for that is given the form as a tool to
 * end with, and what it calls that tool with is its answer: JSON as text, as a model with such a mode gives it. So nobody
 * else sees the tool, and the history has no call of it.
 */
export function streamInForm(
  model: Model,
  request: ModelRequest,
  signal: AbortSignal,
  onReplayDropped?: ReportReplayDrops,
): AsyncIterable<ModelEvent> {
  const { output } = request;
  if (output === undefined || model.answersInForm?.(request) === true)
    return model.stream(request, signal, onReplayDropped);
  const { output: _, ...rest } = request;
  const tool = toolFor(output.schema, request.tools);
  const { options = {} } = request;
  const asked: ModelRequest = {
    ...rest,
    tools: [...request.tools, tool.spec],
    // Some call it is to make: one of the turn's tools, or this one.
    options: { ...options, toolChoice: options.toolChoice ?? "required" },
  };
  return answersOf(model.stream(asked, signal, onReplayDropped), tool);
}

interface OutputTool {
  readonly spec: ToolSpec;
  /** A tool's arguments are an object; any other value is its only field. */
  readonly wraps: boolean;
}

function toolFor(schema: JsonObject, others: readonly ToolSpec[]): OutputTool {
  const wraps = schema.type !== "object";
  let name = NAME;
  for (let n = 2; others.some((other) => other.name === name); n++) name = `${NAME}_${n}`;
  const said = typeof schema.description === "string" ? ` ${schema.description}` : "";
  return {
    wraps,
    spec: {
      name,
      description: `Gives the final answer. Call it once, alone, when nothing else is left to do.${said}`,
      inputSchema: wraps ? { type: "object", properties: { value: schema }, required: ["value"] } : schema,
    },
  };
}

/** An answer on its way: what of it was said. */
interface Said {
  readonly blockId: string;
  text: string;
}

async function* answersOf(events: AsyncIterable<ModelEvent>, tool: OutputTool): AsyncGenerator<ModelEvent> {
  const answers = new Map<string, Said>();
  let others = 0;
  const saidIn = (callId: string): Said => {
    const said = answers.get(callId) ?? { blockId: `${NAME}_${answers.size + 1}`, text: "" };
    answers.set(callId, said);
    return said;
  };
  for await (const event of events) {
    if (event.type === "tool_input_delta" && event.toolName === tool.spec.name) {
      // A value that is wrapped is known when it is whole.
      if (tool.wraps) continue;
      const said = saidIn(event.callId);
      said.text += event.text;
      yield { type: "text_delta", blockId: said.blockId, text: event.text };
    } else if (event.type === "tool_call" && event.toolName === tool.spec.name) {
      const said = saidIn(event.callId);
      const whole = answerOf(event.argsText, tool);
      // What was said is not taken back: a provider may write its arguments anew when they are whole.
      const rest = whole.startsWith(said.text) ? whole.slice(said.text.length) : "";
      if (rest !== "") yield { type: "text_delta", blockId: said.blockId, text: rest };
      yield { type: "text_end", blockId: said.blockId };
    } else {
      if (event.type === "tool_call") others++;
      const ends = event.type === "finish" && event.reason === "tool_calls" && answers.size > 0 && others === 0;
      yield ends ? { ...event, reason: "stop" } : event;
    }
  }
}

/** What cannot be read is passed on as it was written: the turn says what is wrong with it. */
function answerOf(argsText: string, { wraps }: OutputTool): string {
  if (!wraps) return argsText;
  try {
    const { value } = JSON.parse(argsText) as { readonly value?: unknown };
    return value === undefined ? argsText : JSON.stringify(value);
  } catch {
    return argsText;
  }
}
