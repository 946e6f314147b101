import type { ToolCall } from "../../../kernel/index.js";
import { isForModel } from "../../../plugin/index.js";
import type { RegisteredTool, ToolExecution } from "../../../tools/index.js";
import { type EventSink, eventError } from "../../../trace/index.js";
import { deniedAccess } from "../../../wire/index.js";

interface ExecutedCall {
  readonly sessionId: string;
  readonly call: ToolCall;
  readonly executed: ToolExecution;
  /** What the tool or its home threw; undefined when it was late. */
  readonly thrown: unknown;
  readonly home: RegisteredTool["home"];
}

/** Tells of a tool that failed. What it said to the model on purpose, and calls the model made wrong, are no failures of it. */
export function tellToolFailed(events: EventSink, { sessionId, call, executed, thrown, home }: ExecutedCall): void {
  const { output, ran } = executed;
  if (!ran || output.status !== "failure" || isForModel(thrown)) return;
  const { code, message } = output.failure;
  if (code === "invalid_tool_args") return;
  const { toolName, callId, args } = call;
  const who = home.kind === "plugin" ? `Tool ${toolName} of plugin ${home.pluginId}` : `Tool ${toolName}`;
  const error =
    thrown === undefined ? { name: "TroupeError", code, message } : eventError(deniedAccess(thrown, who) ?? thrown);
  events.emit({
    type: "tool_failed",
    session: sessionId,
    ...(home.kind === "plugin" && { plugin: home.pluginId }),
    tool: toolName,
    call: callId,
    code,
    home: home.kind,
    error,
    ...(events.content && { content: { args } }),
  });
}
