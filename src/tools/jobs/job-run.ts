import { type Clock, deferred, ignore, type Timer } from "../../async/index.js";
import {
  asTroupeError,
  checkTaskRequest,
  checkTaskValue,
  foreignError,
  invalidTask,
  type Json,
  MAX_PROGRESS,
  MAX_STEPS,
  type StoredStep,
  TroupeError,
  taskJobUnknown,
} from "../../kernel/index.js";
import {
  type HostMethod,
  hostFacade,
  type JobContext,
  type LoadedPlugin,
  OPERATION_HOSTS,
  parseAny,
  TASK_SLEEP,
  TASK_STEP,
} from "../../plugin/index.js";
import type { JobAnswer, JobCall } from "./job-calls.js";

/** How a run reaches who ordered it. */
export interface JobLine {
  readonly clock: Clock;
  readonly signal: () => AbortSignal;
  ask(method: string, args: readonly unknown[]): Promise<unknown>;
  tell(progress: Json): void;
}

/** How often a run says how far it is, at most. */
const PROGRESS_MS = 100;

/** Runs a job. What it throws is an answer. */
export async function runJob(plugin: LoadedPlugin, call: JobCall, line: JobLine): Promise<JobAnswer> {
  try {
    return await new JobRun(plugin, call, line).run();
  } catch (thrown) {
    const { code, message } = asTroupeError(thrown, "task_failed");
    return { kind: "failed", code, message };
  }
}

/**
 * Refuses a job the plugin does not have and an input that does not fit it, where both are known: in the middle of the
 * call that spawns a task. The run looks again.
 */
export async function checkSpawn(plugin: LoadedPlugin, method: HostMethod, args: readonly unknown[]): Promise<void> {
  if (method !== "spawnManagedTask" && method !== "spawnHiddenTask") return;
  const { job, input } = checkTaskRequest(args.at(-1), { kind: "managed", owner: plugin.manifest.id });
  if (job !== null) await parsedInput(plugin, job.name, input);
}

async function parsedInput({ manifest, jobs }: LoadedPlugin, name: string, input: unknown): Promise<unknown> {
  const job = jobs.get(name);
  if (job === undefined) throw taskJobUnknown(manifest.id, name, [...jobs.keys()]);
  const parsed = await parseAny(job.input, input, `job ${name}`);
  if (parsed.ok) return parsed.value;
  throw invalidTask(`its input does not fit the job ${name}: ${parsed.issues.join("; ")}`);
}

class JobRun {
  readonly #plugin: LoadedPlugin;
  readonly #call: JobCall;
  readonly #line: JobLine;
  readonly #stored: ReadonlyMap<number, StoredStep>;
  readonly #asleep = deferred<JobAnswer>();
  #steps = 0;
  #over = false;
  /** It sleeps, and what is left of it goes on nowhere. */
  #letGo = false;
  #progress: { readonly value: Json } | undefined;
  #telling: Timer | undefined;

  constructor(plugin: LoadedPlugin, call: JobCall, line: JobLine) {
    this.#plugin = plugin;
    this.#call = call;
    this.#line = line;
    this.#stored = new Map(call.steps);
  }

  async run(): Promise<JobAnswer> {
    const { job, input } = this.#call;
    const parsed = await parsedInput(this.#plugin, job, input);
    const ran = (async () => this.#plugin.jobs.get(job)?.run(parsed, this.#context()))();
    // Behind a sleep the job goes on nowhere: what it still holds is given up with it.
    ran.catch(ignore);
    try {
      return await Promise.race([ran.then(doneWith), this.#asleep.promise]);
    } finally {
      this.#over = true;
      this.#telling?.cancel();
      if (this.#progress !== undefined) this.#line.tell(this.#progress.value);
    }
  }

  #context(): JobContext {
    const { taskId, sessionId, label, attempt } = this.#call;
    const line = this.#line;
    return {
      taskId,
      sessionId,
      label,
      attempt,
      options: this.#plugin.options,
      get signal() {
        return line.signal();
      },
      host: this.#host() as JobContext["host"],
      progress: (value) => this.#tell(checkTaskValue("its progress", value, MAX_PROGRESS)),
      step: (name, run) => this.#step(name, run),
      sleep: (until) => this.#sleep(until),
    };
  }

  #host(): object {
    return hostFacade(OPERATION_HOSTS.task, async (method, args) => {
      await checkSpawn(this.#plugin, method, args);
      return this.#ask(method, args);
    });
  }

  /** Never settles for what is left of a run that was let go. */
  async #ask(method: string, args: readonly unknown[]): Promise<unknown> {
    try {
      if (!this.#letGo) return await this.#line.ask(method, args);
    } catch (error) {
      if (!this.#letGo) throw error;
    }
    return new Promise(ignore);
  }

  #tell(progress: Json): void {
    if (this.#over) return;
    this.#progress = { value: progress };
    if (this.#telling !== undefined) return;
    const tell = () => {
      this.#telling = undefined;
      if (this.#progress === undefined) return;
      this.#line.tell(this.#progress.value);
      this.#progress = undefined;
      this.#telling = this.#line.clock.timeout(PROGRESS_MS, tell).unref();
    };
    tell();
  }

  async #step<T>(name: string, run: () => T | Promise<T>): Promise<T> {
    const [nth, stored] = this.#next(name);
    if (stored !== undefined) return outcomeOf(stored.outcome) as T;
    let value: T;
    let outcome: StoredStep["outcome"];
    try {
      value = await run();
      outcome = { kind: "value", value: checkTaskValue(`the outcome of its step ${name}`, value) };
    } catch (thrown) {
      const { code, message } = asTroupeError(thrown, "task_failed");
      await this.#ask(TASK_STEP, [nth, { name, outcome: { kind: "error", code, message } } satisfies StoredStep]);
      throw thrown;
    }
    await this.#ask(TASK_STEP, [nth, { name, outcome } satisfies StoredStep]);
    // As every later run gets it: a date is a text there.
    return outcomeOf(outcome) as T;
  }

  async #sleep(until: Date | number): Promise<void> {
    const at = typeof until === "number" ? until : Number(Object(until).getTime?.());
    if (!Number.isFinite(at)) throw invalidTask("it sleeps until a date, or milliseconds since 1970");
    const [nth, stored] = this.#next(SLEEP);
    if (stored !== undefined) return;
    if ((await this.#ask(TASK_SLEEP, [nth, Math.ceil(at)])) !== "asleep") return;
    this.#letGo = true;
    this.#asleep.resolve({ kind: "asleep" });
    // What comes behind it is the next run's.
    await new Promise(ignore);
  }

  #next(name: string): readonly [nth: number, stored: StoredStep | undefined] {
    if (typeof name !== "string" || name === "" || name.length > 200)
      throw invalidTask("the name of a step is a text of 1 to 200 characters");
    const nth = ++this.#steps;
    if (nth > MAX_STEPS) throw invalidTask(`it has more than ${MAX_STEPS} steps`);
    const stored = this.#stored.get(nth);
    if (stored !== undefined && stored.name !== name) throw changed(this.#call, { nth, name, stored: stored.name });
    return [nth, stored];
  }
}

/** The name of a sleep, which no other step should have. */
export const SLEEP = "sleep";

function doneWith(value: unknown): JobAnswer {
  return { kind: "done", value: checkTaskValue("its result", value) };
}

function outcomeOf(outcome: StoredStep["outcome"]): Json {
  if (outcome.kind === "value") return outcome.value;
  if (outcome.kind === "slept") return null;
  throw foreignError(outcome.code, outcome.message);
}

function changed(
  { job, taskId }: JobCall,
  { nth, name, stored }: { readonly nth: number; readonly name: string; readonly stored: string },
): TroupeError {
  const message = `Job ${job} came to ${JSON.stringify(name)} as its step ${nth}, where ${JSON.stringify(stored)} is stored of an earlier run.`;
  return new TroupeError("task_changed", message, { details: { taskId, nth, name, stored } });
}
