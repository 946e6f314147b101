import type { CodeTable } from "./entry.js";

/** Work that goes on by itself: schedules, triggers, tasks. */
export const BACKGROUND = {
  invalid_schedule: {
    cause: "A schedule was asked for with something wrong in the request, or one that would never run.",
    cure: "Correct the field that the message names.",
  },
  schedule_unknown: {
    cause: "There is no schedule under that key: it was removed, or never made.",
    cure: "`troupe.schedules.list()` says which there are.",
  },
  schedule_needs_croner: {
    cause: "A schedule has a cron expression, and the package `croner` cannot be loaded.",
    cure: "`npm install croner@11`, or say the times with `at` or `everyMs`.",
  },
  invalid_trigger: {
    cause:
      "An event, or a subscription to one, was given with something wrong in it, such as a payload that does not fit.",
    cure: "Correct what the message names.",
  },
  trigger_unknown: {
    cause: "No plugin of the runtime declares that trigger.",
    cure: "Say it as `alias.event`; `session.surface()` lists the triggers.",
  },
  trigger_key_conflict: {
    cause: "An event came under a key that another event of the trigger had, with another payload.",
    cure: "Give each event a key of its own, such as the id its sender gave it.",
  },
  trigger_check_failed: {
    cause: "The plugin that declares a trigger threw while it checked an event's payload.",
    cure: "The message is what its schema threw; a schema says what is wrong and does not throw.",
  },
  trigger_check_timeout: {
    cause: "Checking an event's payload did not end in time: the schema's own check, or a pattern that backtracks.",
    cure: "Correct the schema, or give its plugin a longer `deadlineMs`.",
    retryable: "sometimes",
  },
  invalid_task: {
    cause: "A task, or something about one, was asked for with something wrong in the request.",
    cure: "Correct what the message names.",
  },
  task_unknown: {
    cause: "There is no task of that id that the session may see: it never was, is another session's, or is long over.",
    cure: "Ask for the tasks there are: `session.tasks()`, `context.host.listBackgroundTasks()`, `list_tasks`.",
  },
  task_key_conflict: {
    cause: "A task was asked for under a key, or an id, that a task has which goes on and was asked for otherwise.",
    cure: "Cancel or await that one first, or give the new one a key of its own.",
  },
  task_job_unknown: {
    cause: "A task names a job that its plugin does not declare.",
    cure: "Name one of the plugin's `jobs`; the message lists them.",
  },
  task_limit: {
    cause: "A session has as many tasks that go on as it may have.",
    cure: "Await or cancel some of them first.",
  },
  task_over: {
    cause: "A run of a task went on after the task had ended, was cancelled, or had been taken up again elsewhere.",
    cure: "None is needed: what that run still says counts for nothing. A job sees it by its `signal`.",
  },
  task_timeout: {
    cause: "A task did not end within its `deadlineMs`.",
    cure: "Give it longer, or less to do.",
  },
  task_lost: {
    cause:
      "A task was lost with its thread or process again and again without finishing a step, a step of it was lost with a damaged store, or it went on elsewhere when its session was exported.",
    cure: "Look for what ends the thread (an endless loop, memory); divide the work into smaller steps.",
  },
  task_changed: {
    cause:
      "A task was taken up again, and its job came to another step than the one that is stored there: its code was changed, or what stands between its steps is not the same in every run.",
    cure: "Make what decides on steps a step of its own (the time, chance, what was read). Ask for the task anew.",
  },
  task_failed: {
    cause: "A task's job threw something that has no code of its own.",
    cure: "The message is what the job threw.",
  },
  subagent_unknown: {
    cause: "The model named an agent, or a kind of agents, that there is not.",
    cure: "None is needed: the model reads which there are. Kinds are the plugin's option `agents`.",
  },
  subagent_exists: {
    cause: "The model spawned an agent under the name of one that it has.",
    cure: "None is needed: the model asks that one, or chooses another name.",
  },
  subagent_limit: {
    cause: "A session and its agents have as many agents as they may have.",
    cure: "The model closes one that it needs no more; or raise the plugin's `maxAgents`.",
  },
  subagent_depth: {
    cause: "An agent wanted an agent of its own where agents may not be deeper.",
    cure: "The model does it itself; or raise the plugin's `maxDepth`.",
  },
  subagent_busy: {
    cause: "An agent was asked something, or closed, while it was at work.",
    cure: "The model waits for its answer, or closes the agent.",
  },
  subagent_stopped: {
    cause: "The turn of an agent did not end with an answer.",
    cure: "The message says why; the turn is in the agent's session.",
  },
} as const satisfies CodeTable;
