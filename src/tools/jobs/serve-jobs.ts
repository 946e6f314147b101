import type { MessagePort } from "node:worker_threads";
import type { Clock } from "../../async/index.js";
import { type TroupeError, unknownMethod } from "../../kernel/index.js";
import type { LoadedPlugin } from "../../plugin/index.js";
import { Lane } from "../../wire/index.js";
import type { JobAsk, JobCall, JobProgress } from "./job-calls.js";
import { runJob } from "./job-run.js";

interface JobsParts {
  /** By their places. */
  readonly plugins: readonly LoadedPlugin[];
  readonly clock: Clock;
  /** Why something is too much to leave the thread; undefined: it is not. */
  readonly refusalOf?: (what: unknown) => TroupeError | undefined;
  /** Nobody orders anything any more. */
  readonly onLost?: () => void;
}

/** Serves the runs that the main thread orders on a lane. */
export function serveJobs(port: MessagePort, { plugins, clock, refusalOf, onLost }: JobsParts): void {
  const lane: Lane = new Lane(port, {
    name: "The main thread",
    clock,
    ...(refusalOf && { refusalOf }),
    ...(onLost && { onLost }),
    serve(method, payload, call) {
      if (method !== "run") throw unknownMethod("A thread of jobs", method);
      const run = payload as JobCall;
      return runJob(plugins[run.member] as LoadedPlugin, run, {
        clock,
        signal: () => call.signal,
        async ask(asked, args) {
          const refusal = refusalOf?.(args);
          if (refusal !== undefined) throw refusal;
          return lane.call("host", [call.id, asked, args] satisfies JobAsk, { signal: undefined });
        },
        tell: (progress) => lane.note("progress", [call.id, progress] satisfies JobProgress),
      });
    },
  });
}
