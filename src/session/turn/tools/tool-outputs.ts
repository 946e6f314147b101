import {
  asTroupeError,
  MAX_ARGS_DEPTH,
  messageOf,
  type ToolCall,
  type ToolOutput,
  toolFailure,
} from "../../../kernel/index.js";
import type { Turn } from "../turn.js";

export const CANCELLED: ToolOutput = { status: "cancelled", message: "The turn was aborted before this call ran." };

/** Of arguments that no JSON reader accepts. */
export function notJson({ toolName }: ToolCall, text: string): ToolOutput {
  const message = `The arguments of ${toolName} are not valid JSON: ${problemIn(text)}. Call it again with a JSON object.`;
  return toolFailure("invalid_request", "invalid_tool_args", message);
}

function problemIn(text: string): string {
  try {
    JSON.parse(text);
    return `they are nested deeper than ${MAX_ARGS_DEPTH} levels`;
  } catch (error) {
    return messageOf(error);
  }
}

/** What stands in for a result does not end the turn: only its tool's own word does. */
export function withoutControl(output: ToolOutput): ToolOutput {
  if (output.status !== "success" || output.control === undefined) return output;
  const { control: _control, ...rest } = output;
  return rest;
}

/** A frame the session cannot go to fails the call, not the turn; without a task there is nothing to go there for. */
export function withFrame({ session }: Turn, output: ToolOutput): ToolOutput {
  if (output.status !== "success" || output.control?.kind !== "switch_agent_frame") return output;
  const { frameId, task } = output.control;
  if (task.trim() === "") return withoutControl(output);
  try {
    session.graph.checkNewFrame(frameId);
    return output;
  } catch (error) {
    const { code, message } = asTroupeError(error, "frame_exists");
    return toolFailure("invalid_request", code, message);
  }
}
