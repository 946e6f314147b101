import { messageOf, type ToolFailureKind, type ToolOutput, TroupeError, toolFailure } from "../../kernel/index.js";

/** How codes a home may throw are shown to the model. Any other `tool_…` code is kept, as an execution failure. */
const SHOWN: Readonly<Record<string, readonly [kind: ToolFailureKind, code: string]>> = {
  invalid_tool_args: ["invalid_request", "invalid_tool_args"],
  tool_unavailable: ["unavailable", "tool_unavailable"],
  tool_module_not_found: ["unavailable", "tool_module_not_found"],
  tool_module_invalid: ["unavailable", "tool_module_invalid"],
  tool_pool_closed: ["unavailable", "tool_pool_closed"],
  tool_worker_lost: ["unavailable", "tool_worker_lost"],
  tool_out_of_memory: ["resource_limit", "tool_out_of_memory"],
  tool_timeout: ["timeout", "tool_timeout"],
  // What the wire says of a home on another thread, in the words of a tool call.
  worker_lost: ["unavailable", "tool_worker_lost"],
  call_timeout: ["timeout", "tool_timeout"],
  unserialisable: ["execution", "tool_result_unserialisable"],
};

/** The output of a call whose home threw: its own code when that is a tool's, otherwise `tool_failed`. Never throws. */
export function failureOf(thrown: unknown): ToolOutput {
  try {
    return shownFailure(thrown);
  } catch {
    // A getter or a proxy of the tool's own.
    return toolFailure("execution", "tool_failed", "Something was thrown that cannot be read.");
  }
}

function shownFailure(thrown: unknown): ToolOutput {
  const message = messageOf(thrown);
  if (!(thrown instanceof TroupeError)) return toolFailure("execution", "tool_failed", message);
  const shown = Object.hasOwn(SHOWN, thrown.code) ? SHOWN[thrown.code] : undefined;
  if (shown !== undefined) return toolFailure(shown[0], shown[1], message);
  const output = toolFailure("execution", thrown.code.startsWith("tool_") ? thrown.code : "tool_failed", message);
  // Only a tool's own word: what the runtime calls retryable says nothing of what the tool has done.
  if (thrown.code !== "tool_retry" || output.status !== "failure") return output;
  const { afterMs } = thrown.details;
  const retry = { kind: "safe" as const, ...(typeof afterMs === "number" && { afterMs }) };
  return { ...output, failure: { ...output.failure, retry } };
}
