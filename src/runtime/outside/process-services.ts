import {
  checkProcess,
  checkRead,
  checkSignal,
  checkWait,
  invalidProcess,
  type ProcessSpec,
  TroupeError,
} from "../../kernel/index.js";
import type { ProcessMethod } from "../../plugin/index.js";
import type { OutsideAsk } from "../../session/index.js";
import type { CallOptions } from "../../wire/index.js";
import type { Permissions } from "../options/index.js";
import type { ProcessWorker } from "./process-worker.js";

/** What a plugin's entry lets it do. */
export type PermissionsOf = (pluginId: string) => Permissions | "all";

/** Refuses with `process_denied` a plugin whose entry does not grant processes. */
export function checkGranted(pluginId: string, permissionsOf: PermissionsOf): Permissions | "all" {
  const permissions = permissionsOf(pluginId);
  if (permissions === "all" || permissions.processes === true) return permissions;
  throw denied(pluginId, "no processes: grant it { processes: true }", { grant: { processes: true } });
}

/** A process may have of the environment what the plugin's own thread may. */
export function checkEnvironment(pluginId: string, env: readonly string[], permissions: Permissions | "all"): void {
  if (permissions === "all") return;
  const missing = env.filter((name) => permissions.env?.includes(name) !== true);
  if (missing.length === 0) return;
  throw denied(pluginId, `no process with ${missing.join(", ")}: name it in env`, { grant: { env: missing } });
}

function denied(pluginId: string, what: string, details: Readonly<Record<string, unknown>>): TroupeError {
  const message = `Plugin ${pluginId} may have ${what} in permissions of its entry.`;
  return new TroupeError("process_denied", message, { details: { pluginId, ...details } });
}

/** A wait of the process's own comes on top of how long a call may take. */
const CALL_MS = 30_000;

/** Answers `context.host.processes`. Whether the call was granted the interface has been checked where it was made. */
export class ProcessServices {
  readonly #worker: ProcessWorker;
  readonly #permissionsOf: PermissionsOf;

  constructor(worker: ProcessWorker, permissionsOf: PermissionsOf) {
    this.#worker = worker;
    this.#permissionsOf = permissionsOf;
  }

  async answer(method: ProcessMethod, { sessionId, pluginId, args, asked }: OutsideAsk): Promise<unknown> {
    const permissions = checkGranted(pluginId, this.#permissionsOf);
    const owner = { sessionId, pluginId };
    if (method === "listProcesses") return (await this.#worker.askIfThere("list", { owner })) ?? [];
    if (method === "startProcess") {
      const spec: ProcessSpec = checkProcess(args[0]);
      checkEnvironment(pluginId, spec.env, permissions);
      return this.#worker.ask("start", { owner, spec, asked });
    }
    const process = { owner, id: idOf(args[0]) };
    const waiting = (waitMs: number): CallOptions => ({ deadlineMs: CALL_MS + waitMs });
    switch (method) {
      case "readProcess": {
        const spec = checkRead(args[1]);
        return this.#worker.ask("read", { ...process, spec }, waiting(spec.waitMs));
      }
      case "waitForProcess": {
        const waitMs = checkWait((args[1] as { readonly waitMs?: unknown } | undefined)?.waitMs);
        return this.#worker.ask("wait", { ...process, waitMs }, waiting(waitMs));
      }
      case "writeToProcess":
        return this.#worker.ask("write", { ...process, bytes: inputOf(args[1]), asked });
      case "endProcessInput":
        return this.#worker.ask("closeInput", process);
      case "signalProcess":
        return this.#worker.ask("signal", { ...process, signal: checkSignal(args[1]), asked });
      case "stopProcess":
        return this.#worker.ask("stop", process);
    }
  }
}

function idOf(id: unknown): string {
  if (typeof id === "string") return id;
  throw invalidProcess("say which, by its id");
}

function inputOf(bytes: unknown): string | Uint8Array {
  if (typeof bytes === "string" || bytes instanceof Uint8Array) return bytes;
  throw invalidProcess("what is written to it is a text or bytes");
}
