import type { CodeTable } from "./entry.js";

/** Threads and the messages between them. */
export const THREADS = {
  worker_lost: {
    retryable: "sometimes",
    cause: "The thread that was to answer ended. The message says how.",
    cure: "Ask again when `retryable` is true. Look for `process.exit`, a native crash or too little memory.",
  },
  session_worker_given_up: {
    cause: "A session worker's thread ended again and again while nothing was asked of it.",
    cure: "Mend what runs on it (a model, a trusted plugin), then create another runtime.",
  },
  memory_high: {
    cause: "The process uses nearly all the memory it may have. Told as a warning, and as an event.",
    cure: "Host fewer sessions at a time (`maxResident`), give the process more memory, or say with `memoryLimitMb` what it may use.",
  },
  call_timeout: {
    retryable: true,
    cause: "Another thread did not answer in time.",
    cure: "Ask again; look for code that blocks that thread.",
  },
  unserialisable: {
    cause: "Something that is not plain data was to cross a thread or to be stored.",
    cure: "Use strings, numbers, booleans, null, bytes, arrays and plain objects; the message says of what it is about.",
  },
  wire_corrupt: {
    cause: "A thread sent a message that cannot be read.",
    cure: "Look for a plugin that writes to its thread's port; otherwise report it.",
  },
  unknown_method: {
    cause: "A thread was asked for something it does not serve.",
    cure: "Look for a plugin that writes to its thread's port; otherwise report it.",
  },
  worker_unknown: {
    cause: "There is no session worker of that number.",
    cure: "Use a number of `stats()`.",
  },
  plugin_session_unknown: {
    cause: "A plugin's thread was asked about a session that it has not opened.",
    cure: "Report it: the runtime opens a session there first.",
  },
  plugin_not_loaded: {
    cause: "A plugin's thread was asked before it had its plugin.",
    cure: "Report it: the runtime loads the plugin first.",
  },
  worker_not_configured: {
    cause: "A session worker was asked before it had its configuration.",
    cure: "Report it: the runtime configures it first.",
  },
  run_apart: {
    cause: "Hooks that were to cross to their thread together must cross one by one.",
    cure: "Report it: the runtime then calls them one by one, and nobody sees this code.",
  },
} satisfies CodeTable;
