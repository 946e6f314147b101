import type { CodeTable } from "./entry.js";

/** What a turn is refused or ended by. */
export const TURNS = {
  invalid_turn_input: {
    cause: "The input is neither a text nor `{ items }`, or one of its items or attachments cannot be used.",
    cure: "Correct what the message names.",
  },
  invalid_turn_options: {
    cause: "An option of `session.turn` is unknown or has the wrong type.",
    cure: "Correct the option that the message names.",
  },
  input_key_conflict: {
    cause: "An input that waits has the same `key` and another content.",
    cure: "Use one key for one input.",
  },
  inputs_full: {
    retryable: true,
    cause: "The session has as many inputs waiting as it may.",
    cure: "Ask again when a turn has taken some.",
  },
  turn_key_conflict: {
    cause: "A turn with the same `key` and another input was asked for before.",
    cure: "Use one key for one input. With the same input the first result is given again.",
  },
  output_invalid: {
    cause: "The answer of a turn with `output` does not fit its schema, also after it was asked to correct it.",
    cure: "Say in the prompt what the fields mean, or loosen the schema. The turn is stored; `details.issues` or the outcome's message say what does not fit.",
  },
  input_refused: {
    cause: "A plugin's `beforeTurn` hook aborted an input that was to wait for a turn.",
    cure: "Nothing of it was kept. `details.pluginId` and `details.code` say who refused it and why.",
  },
  turn_running: {
    retryable: "sometimes",
    cause: "The session has a turn running or waiting that must end first.",
    cure: "Await it, or cancel it. A session cannot start a turn of its own from within one of its calls; use `queueTurn`.",
  },
  turn_exists: {
    cause: "A plugin started a turn under an id that is taken.",
    cure: "Use another id.",
  },
  turn_unknown: {
    cause:
      "The session has no turn of that id, or a plugin asked for one that it has not started or whose result it has fetched already.",
    cure: "Take the id from an activity or a result of the same session. A plugin awaits each turn once.",
  },
  turn_result_forgotten: {
    cause: "The turn is stored, but its result is no longer kept.",
    cure: "Read what was said in it with `session.messages()`. Give a turn a `key` when its result is asked for later: the last 32 of these are kept.",
  },
  turn_suspended: {
    retryable: "sometimes",
    cause: "The runtime is closing, or the turn's worker or store was lost. The turn is kept.",
    cure: "Open the session again: the turn goes on from where it was.",
  },
  turn_result_lost: {
    cause: "The turn is stored, but its worker ended before it could answer.",
    cure: "Read the session's messages; the turn is not made again.",
  },
  turn_failed: {
    cause: "Something threw in a turn that is no error of Troupe.",
    cure: "See the `cause`.",
  },
  turn_poisoned: {
    cause: "The turn's worker ended each time the turn was taken up, so it is not tried again.",
    cure: "Mend what ends the worker (a model, a trusted plugin), then send the input again.",
  },
  aborted: {
    cause: "The call's `signal` was aborted.",
    cure: "Nothing, when you aborted it; the reason is the `cause`.",
  },
  cancelled: {
    cause: "The turn was cancelled.",
    cure: "Nothing, when you cancelled it.",
  },
  turn_deadline: {
    cause: "The turn took longer than its `deadlineMs`, without the time it waited for people.",
    cure: "Raise `deadlineMs`, or ask for less in one turn. What was whole by then is stored.",
  },
  budget_spent: {
    cause: "The budget of the session, or of its tenant, is used up. The turn waits, or is not begun.",
    cure: "Raise the budget with `session.setBudget` or `troupe.setTenantBudget`, begin another session, or wait for the tenant's next period.",
  },
  max_turns: {
    cause: "The turn made as many model calls as `maxSteps` allows.",
    cure: "Raise `maxSteps`, or ask for less in one turn.",
  },
  no_outcome: {
    cause: "The protocol ended the turn without an outcome.",
    cure: "Mend the protocol: its last step finishes, stops or switches.",
  },
  no_progress: {
    cause: "The protocol asked for the same again and again without the turn moving on.",
    cure: "Mend the protocol.",
  },
  frame_switch_limit: {
    cause: "One turn switched frames more often than it may.",
    cure: "Look for two frames that hand a task to each other for ever.",
  },
  completion_reopened: {
    cause: "Checkpoint hooks reopened a finished turn more often than it may be.",
    cure: "Let the hook reopen it only when it has something to add.",
  },
  submitted_error: {
    cause: "A tool or the model ended the turn by submitting an error.",
    cure: "Read the outcome's `message` and `value`.",
  },
  replay_mismatch: {
    cause: "A turn that was taken up again asked for something else than it had recorded.",
    cure: 'Leave `journal.onMismatch` at "use_recorded": the turn then goes on with what it was asked with. With "stop" make hooks repeat themselves: no clock, no chance. The message has the paths that differ. Send the input again.',
  },
  attachment_missing: {
    cause: "An attachment of the conversation is no longer stored.",
    cure: "Send it again.",
  },
  token_usage_invalid: {
    cause: "A model reported a usage that is not made of whole numbers from 0.",
    cure: "Mend the model.",
  },
  token_usage_overflow: {
    cause: "A session has used more tokens than can be counted.",
    cure: "Begin another session, or mend the model that reports them.",
  },
  race_without_winner: {
    cause: "None of the sessions of a `race` finished its turn.",
    cure: "`details` says for each session why.",
  },
  model_unknown: {
    cause: "A session or turn names a model that the runtime was not given.",
    cure: "Use one of the names that the message lists, or add it to `models`.",
  },
  invalid_context: {
    cause: "A context transform of a plugin returned a context that cannot be used.",
    cure: "Correct what the message names, in the plugin.",
  },
  invalid_prompt: {
    cause: "A prompt contribution of a plugin, or a layer of the host's, cannot be used.",
    cure: "Correct what the message names.",
  },
  code_failed: {
    cause: "A plugin's code executor threw.",
    cure: "Mend the executor.",
  },
  code_execution_unavailable: {
    cause: "The protocol asked to run code, and no plugin of the session has a code executor.",
    cure: "Add a plugin with a code executor, or use another protocol.",
  },
} satisfies CodeTable;
