import type { CodeTable } from "./entry.js";

/** What sessions have outside of the runtime: child processes. */
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
} as const satisfies CodeTable;
