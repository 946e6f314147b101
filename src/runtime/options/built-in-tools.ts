import { invalidOptions, unknownName } from "../../kernel/index.js";
import type { ToolContext, ToolDefinition } from "../../plugin/index.js";

/** The tools of the runtime's own that a host can give its sessions. */
export const BUILT_IN_TOOLS = ["wake_me", "await_task", "list_tasks", "cancel_task"] as const;
export type BuiltInTool = (typeof BUILT_IN_TOOLS)[number];

/** What each of them does, once there is a runtime to do it. */
export type BuiltInBodies = { readonly [T in BuiltInTool]: (args: never, context: ToolContext) => Promise<unknown> };

/** The arguments of `wake_me`. */
export interface WakeArgs {
  readonly message: string;
  readonly in_seconds?: number;
  readonly at?: string;
}

/** The arguments of `await_task` and `cancel_task`. */
export interface TaskArgs {
  readonly task: string;
  readonly wait_seconds?: number;
}

/** How long one call of `await_task` may wait. */
const LONGEST_WAIT_S = 600;

/** The longest that a model may put off, in seconds: ten years. */
const LONGEST_S = 10 * 365 * 24 * 3_600;

const TASK = { type: "string", minLength: 1, maxLength: 400 } as const;

const SPECS: {
  readonly [T in BuiltInTool]: Pick<ToolDefinition, "description" | "inputSchema" | "timeoutMs">;
} = {
  wake_me: {
    description:
      "Wakes you up later: you get `message` back as an input then, in this conversation, and can go on. Say when with in_seconds, or with at (a time with its zone, 2027-01-31T09:00:00+01:00). Nothing waits meanwhile.",
    inputSchema: {
      type: "object",
      properties: {
        message: { type: "string", minLength: 1, maxLength: 4_000 },
        in_seconds: { type: "integer", minimum: 1, maximum: LONGEST_S },
        at: { type: "string", maxLength: 40 },
      },
      required: ["message"],
      additionalProperties: false,
    },
  },
  await_task: {
    description:
      "Waits until a background task has ended and gives its result. After wait_seconds (60 unless you say another) it gives the task as it is. You are not told of the end again.",
    inputSchema: {
      type: "object",
      properties: { task: TASK, wait_seconds: { type: "integer", minimum: 0, maximum: LONGEST_WAIT_S } },
      required: ["task"],
      additionalProperties: false,
    },
    timeoutMs: (LONGEST_WAIT_S + 60) * 1_000,
  },
  list_tasks: {
    description: "Lists the background tasks of this conversation: what goes on, how far it is, and what has ended.",
    inputSchema: { type: "object", properties: {}, additionalProperties: false },
  },
  cancel_task: {
    description: "Stops a background task.",
    inputSchema: { type: "object", properties: { task: TASK }, required: ["task"], additionalProperties: false },
  },
};

/** The named tools as those of the host; `bodies` is asked when one is called. */
export function builtInTools(names: unknown, bodies: () => BuiltInBodies): Record<string, ToolDefinition> {
  if (names === undefined) return {};
  if (!Array.isArray(names)) throw invalidOptions(`builtInTools is a list of names, such as ["${BUILT_IN_TOOLS[0]}"]`);
  const entries = names.map((name: unknown): [string, ToolDefinition] => {
    const known = BUILT_IN_TOOLS.find((each) => each === name);
    if (known === undefined)
      throw invalidOptions(unknownName(String(name), BUILT_IN_TOOLS, "builtInTools", "tool").replace(/\.$/, ""));
    // The schema has been looked at by then.
    return [known, { ...SPECS[known], execute: (args, context) => bodies()[known](args as never, context) }];
  });
  return Object.fromEntries(entries);
}
