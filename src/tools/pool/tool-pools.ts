import type { Clock } from "../../async/index.js";
import type { Json } from "../../kernel/index.js";
import type { ThreadRights } from "../../wire/index.js";
import { type HomeContext, type RegisteredTool, Slots, type ToolHome } from "../dispatch/index.js";
import type { NoteTaker, ToolDescription } from "../tool-code/index.js";
import { notOfThePool, ToolPool } from "./pool.js";

/** A tool of the pool as the host's options have it. */
export interface PoolTool {
  readonly name: string;
  readonly module: string;
  readonly options?: unknown;
  /** How long importing its module may take, with every top-level await. */
  readonly loadMs: number;
  /** What the threads it runs on may do. */
  readonly rights: ThreadRights;
}

export interface ToolPoolsOptions {
  readonly entry: URL;
  /** Tools that run at once, over all pools. */
  readonly maxThreads: number;
  readonly clock: Clock;
  readonly tools: readonly PoolTool[];
  /** Told what tools say before they answer. */
  readonly noted?: NoteTaker;
}

/**
 * The pools of a session worker, one for all tools whose threads may do the same: what one tool is granted another must
 * not have by running where it ran. A pool has no thread before one of its tools is called.
 */
export class ToolPools implements ToolHome {
  readonly #options: ToolPoolsOptions;
  readonly #slots: Slots;
  readonly #tools = new Map<string, PoolTool>();
  /** By the rights of their threads, as JSON. */
  readonly #pools = new Map<string, ToolPool>();

  constructor(options: ToolPoolsOptions) {
    this.#options = options;
    this.#slots = new Slots(options.maxThreads);
    for (const tool of options.tools) this.#tools.set(tool.name, tool);
  }

  describe(name: string): Promise<ToolDescription> {
    const tool = this.#tools.get(name);
    if (tool === undefined) throw notOfThePool(name);
    return this.#poolOf(tool).describe(tool.module, tool);
  }

  run(registered: RegisteredTool, args: Json, context: HomeContext): Promise<unknown> {
    const { home, spec } = registered;
    const tool = home.kind === "pool" && home.entry !== undefined ? this.#tools.get(home.entry) : undefined;
    if (tool === undefined) return Promise.reject(notOfThePool(spec.name));
    return this.#poolOf(tool).run(registered, args, context, tool.options);
  }

  /** Threads that are alive, and tasks that run or wait. */
  stats() {
    const threads = [...this.#pools.values()].reduce((sum, pool) => sum + pool.stats().threads, 0);
    return { threads, running: this.#slots.taken, waiting: this.#slots.waiting };
  }

  async close(): Promise<void> {
    await Promise.all([...this.#pools.values()].map((pool) => pool.close()));
  }

  #poolOf({ rights }: PoolTool): ToolPool {
    const { execArgv, env } = rights;
    const key = JSON.stringify([execArgv, env]);
    let pool = this.#pools.get(key);
    if (pool === undefined) {
      const { entry, maxThreads, clock, noted } = this.#options;
      pool = new ToolPool({ entry, maxThreads, clock, rights, slots: this.#slots, ...(noted && { noted }) });
      this.#pools.set(key, pool);
    }
    return pool;
  }
}
