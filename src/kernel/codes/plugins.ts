import type { CodeTable } from "./entry.js";

/** What plugins, their hooks and operations fail with. */
export const PLUGINS = {
  hook_failed: {
    cause: "A hook of a plugin threw.",
    cure: "Mend the hook; the error it threw is the `cause`.",
  },
  hook_timeout: {
    retryable: true,
    cause: "A hook did not answer within the plugin's deadline.",
    cure: "Make the hook faster, or raise `deadlineMs` of the plugin's entry or `hookDeadlineMs`.",
  },
  permission_denied: {
    cause: "A plugin's hook did something its thread may not: it read or wrote a file, or started a process or thread.",
    cure: "Add the grant that the message names to `permissions` of the plugin's entry. `details` have `permission`, `resource` and `grant`.",
  },
  breaker_open: {
    retryable: true,
    cause: "A hook is not asked for a while, because it missed its deadline several times in a row.",
    cure: "Mend the hook. The message says when it is tried again.",
  },
  invalid_hook_answer: {
    cause: "A hook returned something that is no answer of its kind.",
    cure: "Return what the message lists: directives come from `deny`, `abortTurn`, `replaceToolArgs` and the like.",
  },
  directive_not_allowed: {
    cause: "A hook returned a directive that belongs to another hook.",
    cure: "The message says where the directive is allowed; move it there.",
  },
  shared_unavailable: {
    cause:
      "A call asked for shared state that it does not have: its plugin declares none, or the session is still being opened, or it is a query that wants to change it.",
    cure: "Declare `shared` in the plugin's definition; change shared state in a hook, tool, command, task or action.",
  },
  shared_key_invalid: {
    cause: "The `key` of a plugin's shared state gave something else than a text of 1 to 256 bytes.",
    cure: 'Return a text for every session, also for one without a tenant: `key: ({ tenant }) => tenant ?? "none"`.',
  },
  shared_state_invalid: {
    cause:
      "An update of shared state left something that is not stored: too large, not as its schema says, or from an asynchronous function.",
    cure: "Correct what the message names. A key holds up to 64 KiB.",
  },
  shared_contended: {
    retryable: true,
    cause: "Others changed the same key of shared state again and again while an update was made.",
    cure: "Ask again, or spread what changes often over several keys.",
  },
  shared_full: {
    cause: "A plugin has as many keys of shared state as it may have.",
    cure: "Delete keys nobody needs with `troupe.shared.delete`.",
  },
  answer_too_large: {
    cause: "A plugin answered with more data than a thread may send.",
    cure: "Return less, or put the data where both sides reach it.",
  },
  plugin_prepare_turn: {
    retryable: "sometimes",
    cause: "A `beforeTurn` hook failed, so the turn was not begun.",
    cure: 'Mend the hook, or let turns go on without it: `onFailure: "skip"` in the plugin\'s entry.',
  },
  context_prepare_turn: {
    retryable: "sometimes",
    cause: "A context transform failed, so the turn was not begun.",
    cure: "Mend the transform.",
  },
  plugin_prompt: {
    cause: "A prompt contribution failed.",
    cure: "Mend the plugin's `promptContributor`.",
  },
  before_llm_call_failed: {
    cause: "A `beforeLlmCall` hook failed.",
    cure: "Mend the hook.",
  },
  plugin_assistant_stream: {
    cause: "A stream hook failed.",
    cure: "Mend the hook.",
  },
  plugin_assistant_response: {
    cause: "A response hook failed.",
    cure: "Mend the hook.",
  },
  plugin_prose_projector: {
    cause: "A prose projector failed.",
    cure: "Mend the projector.",
  },
  plugin_checkpoint: {
    cause: "A checkpoint hook failed.",
    cure: "Mend the hook.",
  },
  plugin_finalize_turn: {
    retryable: "sometimes",
    cause: "An `afterTurn` hook failed, so the turn was not stored.",
    cure: 'Mend the hook, or let turns go on without it: `onFailure: "skip"` in the plugin\'s entry.',
  },
  lifecycle_hook_failed: {
    cause: "A hook that watches sessions begin and end failed. The session is unharmed.",
    cure: "Mend the hook; the issue has the plugin's id.",
  },
  config_mutator_failed: {
    cause: "A config mutator failed; the setting was made without it.",
    cure: "Mend the mutator; the issue has the plugin's id.",
  },
  plugin_compact: {
    cause: "A context compactor failed.",
    cure: "Mend the compactor.",
  },
  plugin_capture_failed: {
    cause: "A plugin's state could not be captured: its `snapshot` threw, or what it returned cannot be kept.",
    cure: "Mend `snapshot`; state is plain data.",
  },
  plugin_state_failed: {
    cause: "A plugin could not take up its state.",
    cure: "Mend `restore` or `migrate`.",
  },
  plugin_state_not_stored: {
    cause: "The turn is stored, the state that a plugin captured after it is not.",
    cure: "Read the issue's message; the plugin goes on from the state before.",
  },
  plugin_state_unrevised: {
    cause: "A plugin's state changed while its `snapshotRevision` did not, so the change was not stored.",
    cure: "Give the state another revision with each change.",
  },
  execution_capture_failed: {
    cause: "The state of a code executor could not be captured.",
    cure: "Mend the executor's `snapshotExecutionState`.",
  },
  plugin_session_create_failed: {
    cause: "A session that a plugin asked for could not be created.",
    cure: "See the `cause`.",
  },
  plugin_failed: {
    cause: "A plugin's thread failed with something that is no error of Troupe.",
    cure: "See the `cause`.",
  },
  plugin_unavailable: {
    retryable: "sometimes",
    cause: "A plugin could not be started again, or has threads that do not end.",
    cure: "Mend the plugin, then call `troupe.restartPlugin(id)`. The message has its last error.",
  },
  plugin_unknown: {
    cause: "There is no plugin of that id in this runtime.",
    cure: "Check the id against `plugins`.",
  },
  plugin_blocked: {
    retryable: true,
    cause: "A plugin blocked its thread for longer than its `blockedMs`, so the thread was replaced.",
    cure: "Let long work wait (`await`) in between, or raise `blockedMs`.",
  },
  plugin_out_of_memory: {
    retryable: true,
    cause: "A plugin used more memory than its thread may have, so the thread was replaced.",
    cure: "Let it keep less, or raise `heapMb` or `externalMb`.",
  },
  plugin_too_many_timers: {
    retryable: true,
    cause: "A plugin had too many timers or other resources waiting, so its thread was replaced.",
    cure: "Let it wait for fewer things at a time.",
  },
  plugin_patched_builtins: {
    retryable: true,
    cause: "A plugin replaced functions of JavaScript or Node that its thread cannot do without.",
    cure: "Let it change copies of its own.",
  },
  plugin_malformed_message: {
    retryable: true,
    cause: "A plugin sent messages of its own on its thread's ports, so the thread was replaced.",
    cure: "Let it talk to the host by its hooks and host services only.",
  },
  session_quarantined: {
    retryable: true,
    cause: "A session ended or blocked a plugin's thread again and again, so its calls are refused for a while.",
    cure: "Mend what the plugin does for this session.",
  },
  floating_rejection: {
    cause: "A promise that a plugin did not await was rejected.",
    cure: "Await the promise, or catch its error; `details.at` has the place.",
  },
  uncaught_exception: {
    cause: "Something threw outside of any call on a session worker's thread.",
    cure: "Catch it where it is thrown (a timer, an event listener); `details.at` has the place.",
  },
  process_wide: {
    cause: "A plugin or tool called something that reaches past its thread, such as `process.chdir`.",
    cure: 'Let the host application do it, or give the entry `permissions: "all"`.',
  },
  host_not_granted: {
    cause: "A plugin called a service of `context.host` that its kind of call does not have.",
    cure: "Use one of the services of that call (docs/plugins.md).",
  },
  host_service_unavailable: {
    cause: "A service of `context.host` is not there in this session.",
    cure: "Check the session's settings.",
  },
  host_call_over: {
    cause: "A plugin asked for a service after the call that it belonged to had ended.",
    cure: "Await every service before the hook returns.",
  },
  invalid_host_call: {
    cause: "A service of `context.host` was called with something that cannot be used.",
    cure: "Correct what the message names.",
  },
  operation_unknown: {
    cause: "No plugin has an operation of that name.",
    cure: "Use one that the message lists.",
  },
  operation_failed: {
    cause: "An operation threw, or what it returned cannot be used.",
    cure: "Mend the operation; the error it threw is the `cause`.",
  },
  operation_timeout: {
    retryable: true,
    cause: "An operation did not settle within its `deadlineMs`.",
    cure: "Raise its `deadlineMs`, or make it a task.",
  },
  operation_missing_session: {
    cause: "An operation that is about a session was called without one.",
    cure: "Call it by `session.plugin(id)`, or name a session.",
  },
  operation_unexpected_session: {
    cause: "An operation that is about no session was called with one.",
    cure: "Name no session in the call.",
  },
  operation_key_conflict: {
    cause: "The key of an operation was used for another call before.",
    cure: "Use one key for one call.",
  },
  protocol_failed: {
    cause: "A protocol threw, or answered what cannot be followed.",
    cure: "Mend the protocol; the message has the method.",
  },
  protocol_options_invalid: {
    cause: "The protocol's options of a turn or session cannot be used.",
    cure: "Correct what the message names.",
  },
  protocol_turn_extension: {
    cause: "The protocol refused the extension of a turn.",
    cure: "Correct the extension; the protocol's own words are in the message.",
  },
  protocol_extension_refused: {
    cause: "A turn has an extension, and the protocol of its session takes none.",
    cure: "Leave the extension out, or use a protocol that takes it.",
  },
} satisfies CodeTable;
