import {
  asTroupeError,
  isRecord,
  type Json,
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

/** Does a record of what was asked for name this tool? Then it counts, whatever a hook makes of the arguments by now. */
export function ofTool(toolName: string): (asked: Json | undefined) => boolean {
  return (asked) => isRecord(asked) && asked.toolName === toolName;
}

/** Of a turn that was taken up, when its journal has another tool's call in the place of this one. */
export function recordedOfAnother(toolName: string): ToolOutput {
  const message = `${toolName} was not called: in its place another tool's call was recorded before the turn was interrupted.`;
  return toolFailure("internal", "replay_mismatch", message);
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
