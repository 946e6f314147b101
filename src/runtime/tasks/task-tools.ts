import type { Json, TaskRecord } from "../../kernel/index.js";
import { TroupeError } from "../../kernel/index.js";
import { type ToolContext, toolError } from "../../plugin/index.js";
import type { BuiltInBodies, TaskArgs } from "../options/index.js";
import type { TaskServices } from "./task-services.js";
import type { Tasks } from "./tasks.js";

type TaskTools = Pick<BuiltInBodies, "await_task" | "list_tasks" | "cancel_task">;
type CallFacts = Pick<ToolContext, "sessionId" | "signal">;

const DEFAULT_WAIT_S = 60;

/** What the tools about tasks do, for a model that sees what its session sees. */
export function taskTools(tasks: Tasks, services: TaskServices): TaskTools {
  return {
    await_task: ({ task, wait_seconds: seconds = DEFAULT_WAIT_S }: TaskArgs, { sessionId, signal }: CallFacts) =>
      forModel(async () => {
        const seen = await services.seen(sessionId, task);
        const ended = await tasks.awaited(seen.sessionId, task, { waitMs: seconds * 1_000, signal });
        return { ...briefOf(ended), ...outcomeOf(ended) };
      }),
    list_tasks: (_: unknown, { sessionId }: CallFacts) =>
      forModel(async () => ({ tasks: (await services.list(sessionId)).map(briefOf) })),
    cancel_task: ({ task }: TaskArgs, { sessionId }: CallFacts) =>
      forModel(async () => {
        await services.seen(sessionId, task);
        return briefOf(await tasks.cancel(sessionId, task));
      }),
  };
}

/** As a model reads it. */
function briefOf({ id, label, kind, state, progress, error }: TaskRecord): Readonly<Record<string, Json>> {
  return {
    task: id,
    ...(label !== "" && { label }),
    kind,
    state,
    ...(progress !== null && { progress }),
    ...(error !== null && { error: error.message }),
  };
}

function outcomeOf({ state, result }: TaskRecord): Readonly<Record<string, Json>> {
  return state === "completed" ? { result } : {};
}

/** Its words are those of what the model asked for: there is no such task. */
async function forModel<T>(work: () => Promise<T>): Promise<T> {
  try {
    return await work();
  } catch (error) {
    const isForModel = error instanceof TroupeError && ["task_unknown", "invalid_task"].includes(error.code);
    throw isForModel ? toolError(error.message, { code: error.code }) : error;
  }
}
