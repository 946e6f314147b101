import { MessageChannel } from "node:worker_threads";
import { systemClock } from "../../src/async/index.js";
import { type LoadedPlugin, loadPlugin } from "../../src/plugin/index.js";
import type { TasksRuntime } from "../../src/runtime/tasks/index.js";
import type { JobServer } from "../../src/runtime/threads/index.js";
import { serveJobs } from "../../src/tools/index.js";
import { Lane, workerLost } from "../../src/wire/index.js";

/** Where the jobs of a plugin run, on the thread of the test; `lose` ends the lane as the death of its thread would. */
export async function jobsHere(definition: object): Promise<{
  readonly jobsOf: TasksRuntime["crew"]["jobsOf"];
  readonly lose: () => void;
}> {
  const plugin: LoadedPlugin = await loadPlugin(definition, undefined, "the test");
  let lane: Lane | undefined;
  const take = async (server: JobServer): Promise<Lane> => {
    if (lane?.lost === false) return lane;
    const { port1, port2 } = new MessageChannel();
    serveJobs(port2, { plugins: [plugin], clock: systemClock });
    const own: Lane = new Lane(port1, {
      name: "The jobs",
      clock: systemClock,
      serve: (method, payload) => server.serve(own, method, payload),
      onNote: (_, payload) => server.noted(own, payload),
    });
    port1.unref();
    port2.unref();
    lane = own;
    return own;
  };
  const host = { take, free() {} };
  const place = { host: () => host, member: 0, jobs: plugin.manifest.jobs ?? [] };
  return {
    jobsOf: () => place as never,
    lose: () => lane?.lose(workerLost("The thread")),
  };
}
