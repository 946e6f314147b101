import { statSync } from "node:fs";
import { TroupeError } from "../../kernel/index.js";

/** What a thread must not be able to do. */
export interface Denials {
  /** Whose code runs there, for errors. */
  readonly of: string;
  /** Paths it must not be able to read, there or not. */
  readonly paths: readonly string[];
  readonly network: boolean;
}

/** How a thread is started so that it may do what it was granted, and what it finds denied before it imports anything. */
export interface ThreadRights {
  readonly execArgv: readonly string[];
  readonly env: Readonly<Record<string, string>>;
  readonly denials: Denials | undefined;
}

/**
 * Tries what must be denied, before foreign code is imported: a thread that is let do it was promised to nobody. Node's
 * permissions of a thread differ from release to release (since 22 a thread may read the whole working directory unless
 * it is started in a certain way), so that flags alone are no proof.
 */
export function checkDenials({ of, paths, network }: Denials): void {
  for (const path of paths) {
    if (!isDenied(path))
      throw unenforceable(of, `its thread may read ${path}, which it was not granted, on Node ${process.version}`);
  }
  const { permission } = process as { permission?: { has(scope: string): boolean } };
  if (network && permission?.has("net") !== false)
    throw unenforceable(of, `its thread may use the network on Node ${process.version}`);
}

function isDenied(path: string): boolean {
  try {
    statSync(path);
  } catch (error) {
    return (error as NodeJS.ErrnoException).code === "ERR_ACCESS_DENIED";
  }
  return false;
}

const GRANTS: Readonly<Record<string, (path: string) => readonly [does: string, grant: string]>> = {
  FileSystemRead: (path) => [`read ${path}`, `{ read: [${JSON.stringify(path)}] }`],
  FileSystemWrite: (path) => [`write to ${path}`, `{ write: [${JSON.stringify(path)}] }`],
  ChildProcess: () => ["start another process", "{ childProcess: true }"],
  WorkerThreads: () => ["start a thread", "{ worker: true }"],
  Addon: () => ["load an addon", "{ addons: true }"],
  Net: () => ["use the network", "{ network: true }"],
};

/**
 * What Node refused, with the grant that would allow it; undefined for any other error. `who`: "Plugin acme.audit". Node
 * itself says no more than "Access to this API has been restricted".
 */
export function deniedAccess(thrown: unknown, who: string): TroupeError | undefined {
  for (let error = thrown, depth = 0; error instanceof Error && depth < MOST_CAUSES; error = error.cause, depth++) {
    const { code, permission = "", resource = "" } = error as Error & Readonly<Record<string, string>>;
    const words = code === "ERR_ACCESS_DENIED" && Object.hasOwn(GRANTS, permission) ? GRANTS[permission] : undefined;
    if (words === undefined) continue;
    const [does, grant] = words(resource);
    const folder = resource === "" ? "" : ", or a folder that contains it";
    const message = `${who} may not ${does}. Allow it in its entry, with permissions: ${grant}${folder}.`;
    return new TroupeError("permission_denied", message, { details: { permission, resource, grant }, cause: thrown });
  }
  return undefined;
}

const MOST_CAUSES = 8;

/** For permissions that were asked for and cannot be had. */
export function unenforceable(of: string, why: string): TroupeError {
  return new TroupeError(
    "isolation_unenforceable",
    `The permissions of ${of} cannot be enforced here: ${why}. Use a release of Node.js that enforces them (see docs/isolation.md), ask for less in its permissions, or say that you trust it: isolation: "trusted" for a plugin, permissions: "all" for a tool.`,
    { details: { of } },
  );
}
