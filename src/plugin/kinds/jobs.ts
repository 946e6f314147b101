import type { Json } from "../../kernel/index.js";
import type { PluginActionHost } from "../host/index.js";
import type { InferSchema, Schema } from "../schema/index.js";

/** What the run of a job is given. */
export interface JobContext<Options = unknown> {
  /** Of the task it is run for. */
  readonly taskId: string;
  readonly sessionId: string;
  readonly label: string;
  /** How often the task was begun: 1, and more behind a crash or a sleep. */
  readonly attempt: number;
  /** The plugin's own options, as its schema read them. */
  readonly options: Options;
  /** Aborts when the task is cancelled, has missed its deadline, or is taken up elsewhere. */
  readonly signal: AbortSignal;
  readonly host: PluginActionHost;
  /** How far it is, for whoever lists tasks: JSON of up to 4,096 characters. The last one is kept. */
  progress(value: Json): void;
  /**
   * Does something once: when it is done its outcome is stored, and a run that begins anew after a crash or a sleep gets
   * that in its place. A failure is an outcome too. What stands between steps must come to the same steps in every run.
   *
   * @example
   * const page = await context.step("fetch", () => download(url));
   */
  step<T>(name: string, run: () => T | Promise<T>): Promise<T>;
  /**
   * Lets the task go until a time (a date, or milliseconds since 1970): nothing of it stays in memory. Then the job is run
   * again from its beginning, with its steps answered, and goes on behind this.
   */
  sleep(until: Date | number): Promise<void>;
}

/**
 * Work of a plugin that goes on beside a session's turns: `jobs: { index: { input, run } }`. It is begun by
 * `host.spawnManagedTask({ job: "index", input })`, and what it returns is the task's result.
 */
export interface Job<I extends Schema = Schema, Options = unknown> {
  /** Any Standard Schema or a JSON Schema. */
  readonly input: I;
  /** On threads of the pool, which run one job each: for work that computes. Default: on a thread of the plugin's. */
  readonly pool?: boolean;
  run(input: InferSchema<I>, context: JobContext<Options>): unknown;
}

/** What is known of a job without its code. */
export interface JobSpec {
  readonly name: string;
  readonly pool?: true;
}

/** A job as its plugin runs it. */
export interface LoadedJob {
  readonly spec: JobSpec;
  readonly input: Schema;
  readonly run: (input: unknown, context: JobContext) => unknown;
}
