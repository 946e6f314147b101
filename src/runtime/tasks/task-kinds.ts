import type { TaskKind, TaskRecord } from "../../kernel/index.js";

/**
 * What becomes of the tasks of a kind whose work another part of the runtime does: monitors, subagents. Each part gives its
 * own to {@link Tasks.setKind}.
 */
export interface TaskKeeper {
  /**
   * The task was cancelled, and is stored so: its work is to end. What this rejects with is told as `task_failed`. Asked
   * again by the next runtime when it rejected, or its process died before it was done.
   */
  cancel(task: TaskRecord): Promise<void>;
  /** The store had this task going on when the runtime started. Default: nothing, it stays as it is. */
  takeUp?(task: TaskRecord): Promise<void>;
}

export type KeptKind = Extract<TaskKind, "monitor" | "subagent">;
