import type {
  MonitorRequest,
  MonitorSnapshot,
  MonitorUpdateBatch,
  ProcessOutput,
  ProcessRequest,
  ProcessSignal,
  ProcessView,
  ReadRequest,
} from "../../kernel/index.js";

/** What a plugin may do outside of the runtime: child processes, and watching what happens there. */

/** The processes the plugin has in the session, looked at. */
export interface ProcessReads {
  list(): Promise<readonly ProcessView[]>;
  /**
   * What it has said, from one byte on. Only the newest bytes are kept: `dropped` says how many were lost before them.
   *
   * @example
   * for (let from = 0, ended = false; !ended; ) {
   *   const output = await context.host.processes.read(id, { from, waitMs: 1_000 });
   *   ({ next: from, ended } = output);
   *   lines.push(output.text);
   * }
   */
  read(
    id: string,
    request: ReadRequest & { readonly as: "bytes" },
  ): Promise<ProcessOutput & { readonly bytes: Uint8Array }>;
  read(id: string, request?: ReadRequest): Promise<ProcessOutput & { readonly text: string }>;
  /** As it is when it has ended, or after so long: 0 by default, 10 s at the most. */
  wait(id: string, options?: { readonly waitMs?: number }): Promise<ProcessView>;
}

/**
 * Child processes, for a plugin whose entry has `permissions: { processes: true }`. They belong to the plugin in this
 * session, and not to its thread: they go on when that dies, and end with the session's close, or with the runtime.
 */
export interface ProcessActs {
  start(request: ProcessRequest): Promise<ProcessView>;
  write(id: string, input: string | Uint8Array): Promise<void>;
  /** Closes its standard input. */
  end(id: string): Promise<void>;
  /** To it and everything it started. Default `SIGTERM`. */
  signal(id: string, signal?: ProcessSignal): Promise<void>;
  /** Ends it and everything it started: `SIGTERM`, then after 200 ms `SIGKILL`. Resolves when it has ended. */
  stop(id: string): Promise<ProcessView>;
}

/**
 * What is watched for a session without a model: a command, a file, or what a tool answers. A plugin sees its own monitors
 * alone. They go on while the session is parked and after a restart, and end with the session's close. The session is the
 * caller's own unless one is named in front, which must be one that it may see.
 *
 * @example
 * await context.host.startMonitor({ id: "log", file: "/var/log/app.log", pattern: "ERROR", deliver: "turn" });
 */
export interface MonitorHost {
  /** The plugin's monitors; of those that have ended the last 16. */
  monitorSnapshot(sessionId?: string): Promise<MonitorSnapshot>;
  /** What they have told since somebody took it last: given once, whoever takes it. Empty for those that deliver by themselves. */
  takeMonitorUpdates(sessionId?: string): Promise<MonitorUpdateBatch>;
  /** Under an id that goes on with the same request it is the one that is there; with another request it begins anew. */
  startMonitor(request: MonitorRequest): Promise<MonitorSnapshot>;
  startMonitor(sessionId: string, request: MonitorRequest): Promise<MonitorSnapshot>;
  /** Ends it and everything its command started. One that has ended stays as it is. */
  stopMonitor(monitorId: string): Promise<MonitorSnapshot>;
  stopMonitor(sessionId: string, monitorId: string): Promise<MonitorSnapshot>;
}
