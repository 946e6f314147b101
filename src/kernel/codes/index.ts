/** Every code of Troupe, with its cause and its cure. docs/errors.md is made of it; a running program has only the type. */
import { BACKGROUND } from "./background.js";
import { MODELS } from "./models.js";
import { OUTSIDE } from "./outside.js";
import { PLUGINS } from "./plugins.js";
import { SESSIONS } from "./sessions.js";
import { STARTING } from "./starting.js";
import { STORES } from "./stores.js";
import { THREADS } from "./threads.js";
import { TOOLS } from "./tools.js";
import { TURNS } from "./turns.js";

export type { CodeEntry } from "./entry.js";

/** The sections of docs/errors.md. A new code is one entry in one of these tables. */
export const ERROR_CODES = {
  "Starting a runtime": STARTING,
  Sessions: SESSIONS,
  Turns: TURNS,
  Models: MODELS,
  Tools: TOOLS,
  "Plugins, operations and protocols": PLUGINS,
  "Work that goes on": BACKGROUND,
  Processes: OUTSIDE,
  "Stores, exports and backups": STORES,
  Threads: THREADS,
};

/**
 * Every code that Troupe gives an error, an issue of a turn or a failed tool call. docs/errors.md has the cause and the
 * cure of each.
 */
export type TroupeErrorCode =
  | keyof typeof BACKGROUND
  | keyof typeof MODELS
  | keyof typeof OUTSIDE
  | keyof typeof PLUGINS
  | keyof typeof SESSIONS
  | keyof typeof STARTING
  | keyof typeof STORES
  | keyof typeof THREADS
  | keyof typeof TOOLS
  | keyof typeof TURNS;

/** A code where a plugin, a tool or the host can say its own, as in `deny("over_limit", …)`, beside Troupe's. */
// `string & {}` keeps the editor's list of Troupe's codes, which `string` alone would swallow.
export type AnyErrorCode = TroupeErrorCode | (string & {});
