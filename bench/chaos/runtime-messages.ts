import type { Troupe } from "troupe";

/** What the process that asks says to the one with the runtime. */
export type ToRuntime =
  | {
      readonly type: "ask";
      readonly id: number;
      readonly session: string;
      readonly name: string;
      readonly model?: string | undefined;
    }
  | { readonly type: "kill"; readonly target: Parameters<Troupe["kill"]>[0] }
  | { readonly type: "close" };

/** And what that one says. */
export type FromRuntime =
  /** `pid`: of a process that the runtime has. */
  | { readonly type: "ready"; readonly pid: number }
  /** A tool of the turn has begun. */
  | { readonly type: "tool"; readonly id: number }
  | { readonly type: "finished"; readonly id: number; readonly text: string }
  | { readonly type: "refused"; readonly id: number; readonly code: string }
  /** A turn that another process had begun goes on. */
  | { readonly type: "resumed"; readonly session: string };
