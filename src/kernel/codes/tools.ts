import type { CodeTable } from "./entry.js";

/** What a tool call fails with; the model reads most of these. */
export const TOOLS = {
  invalid_tool_args: {
    cause: "The model called a tool with arguments that do not fit its schema.",
    cure: "The model reads what is wrong and tries again. If it keeps failing, say more in the descriptions of the schema.",
  },
  tool_failed: {
    cause: "The body of a tool threw. The model reads no more than that.",
    cure: "The event `tool_failed` has what it threw, with its stack. What the model should read is thrown as `toolError(message)`.",
  },
  tool_error: {
    cause: "A tool threw `toolError(message)`: the model reads the message.",
    cure: "Nothing: the model goes on with it.",
  },
  tool_retry: {
    retryable: true,
    cause: "A tool threw `retryTool(…)`: nothing was done, and it may be tried again.",
    cure: "Nothing: it is tried again as often as its `retry` allows.",
  },
  tool_timeout: {
    cause: "A tool did not return within its `timeoutMs`.",
    cure: "Raise `timeoutMs` of the tool, or make the tool return `pendingTool()`.",
  },
  tool_check_timeout: {
    cause: "Checking arguments by a tool's schema took too long.",
    cure: "Use patterns that do not backtrack in the schema.",
  },
  tool_completion_timeout: {
    cause: "A pending tool call was not answered by its deadline.",
    cure: "Answer it in time with `troupe.completeTool` or `troupe.approve`, or give `pendingTool` or `requireApproval` a longer deadline.",
  },
  tool_answer_invalid: {
    cause:
      "`pendingTool`, `finishTurn`, `failTurn`, `switchFrame` or `toolContent` was called with something that cannot be used.",
    cure: "Correct what the message names.",
  },
  tool_content_invalid: {
    cause:
      "A tool's result, or a hook in its stead, has a file that the host lets nobody attach, or that is not stored.",
    cure: "Send a smaller file, or raise `attachments.maxBytes` or allow the address with `attachments.urls` of `createTroupe`.",
  },
  tool_result_unserialisable: {
    cause: "A tool returned something that is not plain data.",
    cure: "Return strings, numbers, booleans, null, arrays and plain objects.",
  },
  tool_unavailable: {
    cause: "A tool that was called cannot be reached in this session.",
    cure: "Check that the runtime, or the plugin, still has the tool.",
  },
  tool_unknown: {
    cause: "A change of a session's tools names one that there is not.",
    cure: "Use a name or id of `session.surface()`.",
  },
  tool_pool_closed: {
    cause: "The tool pool was closed while the call waited.",
    cure: "Create another runtime.",
  },
  tool_worker_lost: {
    retryable: true,
    cause: "The thread of a pool tool ended in the middle of the call.",
    cure: "Look for `process.exit` or a native crash in the tool. Allow a repetition with its `retry`.",
  },
  tool_out_of_memory: {
    cause: "A pool tool used more memory than its thread may have.",
    cure: "Let it hold less.",
  },
  tool_patched_builtins: {
    cause: "A pool tool replaced functions of JavaScript or Node that others share with it.",
    cure: "Let it change copies of its own.",
  },
  tool_malformed_message: {
    cause: "A pool tool sent messages of its own on its thread's port, so the thread was ended.",
    cure: "Let it answer by what it returns.",
  },
  tool_state_invalid: {
    cause: "A tool state that was to be imported has a wrong shape.",
    cure: "Import what `export` gave, unchanged.",
  },
  tool_state_stale: {
    cause: "A tool state was changed since it was exported.",
    cure: "Export it again.",
  },
  completion_unknown: {
    cause:
      "`completeTool` was given a key of no call that waits: it was answered, cancelled, timed out, or the key is wrong. `details.outcome` says which, where that is known.",
    cure: "Take the key from the `tool_call_pending` activity or from `troupe.pending()`, and answer each once.",
  },
  answer_unusable: {
    cause:
      "`troupe.approve`, `deny` or `completeTool` was called with something that the call does not wait for: arguments that do not fit, or that nobody may change, no reason, a result where a yes is wanted.",
    cure: "Correct what the message names and answer again: the call still waits.",
  },
  approval_denied: {
    cause: "Somebody said no to a tool call: the model reads the reason.",
    cure: "Nothing: the model goes on with it.",
  },
  completion_key_taken: {
    cause: "A tool returned `pendingTool` under a key under which another call waits.",
    cure: "Leave the key out, or make it different for each call.",
  },
  invalid_action_args: {
    cause: "A command or action of a plugin was called with arguments that do not fit its schema.",
    cure: "Correct the arguments that the message lists.",
  },
  invalid_action_output: {
    cause: "A command or action of a plugin returned something that does not fit its output schema.",
    cure: "Mend the plugin.",
  },
  action_failed: {
    cause: "A command or action of a plugin threw.",
    cure: "Mend the plugin; its own words are in the message.",
  },
  before_tool_call_failed: {
    cause: "A `beforeToolCall` hook failed, so the tool was not run.",
    cure: "Mend the hook; the message says whose it is.",
  },
  after_tool_call_failed: {
    cause: "An `afterToolCall` hook failed, so the model does not read the tool's result.",
    cure: "Mend the hook; the message says whose it is.",
  },
  before_tool_call_replacement_conflict: {
    cause: "Two plugins both replace the arguments of a call, and neither accepts the other's.",
    cure: "Let one of them leave the arguments alone.",
  },
  after_tool_call_replacement_conflict: {
    cause: "Two plugins both replace the result of a call, and neither accepts the other's.",
    cure: "Let one of them leave the result alone.",
  },
} satisfies CodeTable;
