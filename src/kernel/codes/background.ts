import type { CodeTable } from "./entry.js";

/** Work that goes on by itself: schedules. */
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
} as const satisfies CodeTable;
