import type { CodeTable } from "./entry.js";

/** What sessions have outside of the runtime: child processes, and what is watched there. */
export const OUTSIDE = {
  invalid_process: {
    cause: "A process was asked for, or one was asked something, with something wrong in the request.",
    cure: "Correct the field that the message names.",
  },
  process_denied: {
    cause: "A plugin asked for a process, or something of one, that its entry does not grant.",
    cure: "Add the `grant` of `details` to `permissions` of the plugin's entry.",
  },
  process_not_started: {
    cause: "The operating system did not start a process.",
    cure: "`details` have Node's `code` (`ENOENT`, `EACCES`, …) and the `path` it is about.",
  },
  process_unknown: {
    cause:
      "The plugin has no such process in the session: it never was, it was forgotten long after its end, or its runtime is another.",
    cure: "`context.host.processes.list()` says which there are.",
  },
  process_input_refused: {
    retryable: "sometimes",
    cause: "A process cannot be written to: it has no standard input, that is closed, or too much of it is unread.",
    cure: "Ask for it with `stdin: true`; write less at once, and again when it has read.",
  },
  process_limit: {
    retryable: true,
    cause: "As many processes run for the session, or the runtime, as may.",
    cure: "End one, or wait for one to end.",
  },
  processes_unsupported: {
    cause: "The system has no process groups, or no `/bin/sh` for the guard that ends them with their host.",
    cure: "Use Linux or macOS with a shell in `/bin/sh`.",
  },
  invalid_monitor: {
    cause: "A monitor was asked for, or one was asked something, with something wrong in the request.",
    cure: "Correct the field that the message names.",
  },
  monitor_denied: {
    cause: "A plugin asked to watch a file that its entry does not let it read, or a link came to lead to one.",
    cure: "Add the `grant` of `details` to `permissions` of the plugin's entry.",
  },
  monitor_unknown: {
    cause: "The plugin has no such monitor in the session: it never was, or it was forgotten after its end.",
    cure: "`monitorSnapshot()` says which there are.",
  },
  monitor_limit: {
    retryable: true,
    cause: "As many monitors go on for the session, or the runtime, as may.",
    cure: "Stop one, or wait for one to end.",
  },
  monitor_file_unreadable: {
    cause: "A file that is to be watched is a folder or a device, or the system does not let the host read it.",
    cure: "Watch a file that the host can read; one that is not there yet is waited for.",
  },
  monitor_pattern_slow: {
    cause: "A monitor's pattern goes back and forth over a line without end, so the monitor was ended.",
    cure: "Write the pattern without repetitions inside repetitions, such as `(a+)+`.",
  },
  monitor_tool_failed: {
    cause:
      "The tool that a monitor runs failed five times in a row, or cannot be run without a model: it has to be approved, or answers later.",
    cure: "The monitor's `end` says what the tool said. Watch with a tool that answers by itself.",
  },
  monitor_failed: {
    cause: "Something broke while a monitor was being watched.",
    cure: "The message says what. Start the monitor again.",
  },
} as const satisfies CodeTable;
