import { existsSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join, resolve } from "node:path";
import { fileURLToPath } from "node:url";
import type { FieldsOf } from "../../kernel/index.js";
import {
  covers,
  grantedPaths,
  isWithin,
  realPath,
  type ThreadRights,
  unenforceable,
  withoutNested,
} from "../../wire/index.js";
import { checkFields, invalid } from "./option-checks.js";
import { packageRoot, readableBy, readableOfTroupe } from "./readable.js";

/** What an isolated plugin or a tool of the pool may do beyond computing. */
export interface Permissions {
  /** Files and folders it may read, and watch, besides its own package. A path that ends with `*` stands for all that begin so. */
  readonly read?: readonly string[];
  readonly write?: readonly string[];
  readonly childProcess?: boolean;
  readonly worker?: boolean;
  readonly addons?: boolean;
  /**
   * It may ask the host for child processes (`context.host.processes`) and watch commands. They run as the host does, and
   * may do whatever the host may.
   */
  readonly processes?: boolean;
  /** Names of the host's environment variables its thread has too. Default: none. */
  readonly env?: readonly string[];
  /** `false`: no network, on Node.js 25 and later; refused with `isolation_unenforceable` before. Default: open. */
  readonly network?: boolean;
}

/** Which there are: one that is forgotten here does not compile, and any other is refused. */
const PERMISSIONS: FieldsOf<Permissions> = {
  read: true,
  write: true,
  childProcess: true,
  worker: true,
  addons: true,
  processes: true,
  env: true,
  network: true,
};

const LISTS = ["read", "write", "env"] as const;
const SWITCHES = ["childProcess", "worker", "addons", "processes", "network"] as const;

/** What a host wrote as permissions, checked. */
export function resolvePermissions(permissions: unknown, what: string): Permissions | "all" {
  if (permissions === undefined || permissions === "all") return permissions ?? {};
  if (typeof permissions !== "object" || permissions === null || Array.isArray(permissions))
    throw invalid(`${what} must be "all" or an object such as { read: ["./data"] }`);
  checkFields(permissions, PERMISSIONS, what);
  const given = permissions as Record<string, unknown>;
  for (const key of LISTS) {
    const list = given[key];
    const isList = Array.isArray(list) && list.every((each) => typeof each === "string" && each !== "");
    if (list !== undefined && !isList) throw invalid(`${what}.${key} must be a list of strings`);
  }
  for (const key of SWITCHES)
    if (given[key] !== undefined && typeof given[key] !== "boolean")
      throw invalid(`${what}.${key} must be true or false`);
  return permissions as Permissions;
}

/** Folders of the system's temporary one in which Node, and `workers/kept-code.ts`, keep compiled code. */
const COMPILED = ["node-compile-cache", `troupe-compile-cache-${process.getuid?.() ?? "user"}`];

/**
 * Could a thread with one of these permissions write where compiled code is kept? It is run by the next session worker,
 * outside of any permissions: a runtime with such a thread runs none of it.
 */
export function mayWriteCompiled(all: readonly (Permissions | "all")[]): boolean {
  const folders = [tmpdir(), realPath(tmpdir())].flatMap((folder) => COMPILED.map((name) => join(folder, name)));
  if (process.env.NODE_COMPILE_CACHE) folders.push(resolve(process.env.NODE_COMPILE_CACHE));
  const written = all.flatMap((permissions) => (permissions === "all" ? [] : grantedPaths(permissions.write)));
  return written.some((grant) => folders.some((folder) => covers(grant, folder) || covers(folder, grant)));
}

/** What runs the runtime, as far as the permissions of threads go. */
export interface Engine {
  readonly name: string;
  /** The flags it knows; undefined when its threads have no permissions. */
  readonly flags: ReadonlySet<string> | undefined;
}

function thisEngine(): Engine {
  if (process.versions.bun !== undefined) return { name: "Bun", flags: undefined };
  if ("Deno" in globalThis) return { name: "Deno", flags: undefined };
  return { name: `Node ${process.version}`, flags: process.allowedNodeEnvironmentFlags };
}

/** Whose code a thread runs, and what it may do. */
export interface Guest {
  /** Names it in errors. */
  readonly name: string;
  readonly modules: readonly string[];
  readonly permissions: Permissions | "all";
  /** What cannot be enforced is done without. */
  readonly trusted?: boolean;
}

/**
 * Node's permission model for the threads of a runtime. It is a seat belt against mistakes, not a sandbox against malice.
 * What a package holds is looked up once: a hundred plugins of one package need not ask the disk a hundred times, and what
 * is put beside them later is not readable before the runtime is started again.
 */
export class ThreadPermissions {
  readonly #engine: Engine;
  readonly #store: string | undefined;
  readonly #troupe: readonly string[];
  /** By the folder of a module: what importing from it reads. */
  readonly #readable = new Map<string, readonly string[]>();

  constructor({ storePath, engine = thisEngine() }: { readonly storePath?: string; readonly engine?: Engine } = {}) {
    this.#engine = engine;
    this.#store = storePath === undefined ? undefined : realPath(resolve(storePath));
    this.#troupe = readableOfTroupe(packageRoot(fileURLToPath(import.meta.url)));
  }

  rights(guest: Guest): ThreadRights {
    const { permissions, trusted = false, name } = guest;
    if (permissions === "all") return { execArgv: [], env: {}, denials: undefined };
    const env = environment(permissions.env ?? []);
    const { flags } = this.#engine;
    if (flags === undefined) {
      if (trusted) return { execArgv: [], env, denials: undefined };
      throw unenforceable(name, `${this.#engine.name} has no permissions for a thread`);
    }
    const offline = permissions.network === false;
    if (offline && !flags.has("--allow-net") && !trusted)
      throw unenforceable(
        name,
        `${this.#engine.name} cannot take the network from a thread (Node.js 25 and later can)`,
      );
    const files = guest.modules.filter((module) => module.startsWith("file:")).map((module) => fileURLToPath(module));
    const asked = grantedPaths(permissions.read);
    const written = grantedPaths(permissions.write);
    const read = withoutNested([
      ...this.#troupe,
      "/proc/thread-self/stat",
      ...files.flatMap((file) => this.#readBy(file)),
      ...asked,
    ]);
    const execArgv = [
      flags.has("--permission") ? "--permission" : "--experimental-permission",
      // Since Node 22 a thread may read the whole working directory, as the place of a script it takes for its first
      // argument and that no thread has. A thread that is called interactive has no script.
      "--interactive",
      "--disable-warning=ExperimentalWarning",
      "--disable-warning=SecurityWarning",
      ...grantsOf("--allow-fs-read", read, asked),
      ...grantsOf("--allow-fs-write", withoutNested(written), written),
    ];
    const allow = (flag: string, wanted: boolean) => {
      if (wanted && flags.has(flag)) execArgv.push(flag);
    };
    allow("--allow-child-process", permissions.childProcess === true);
    allow("--allow-worker", permissions.worker === true);
    allow("--allow-addons", permissions.addons === true);
    allow("--allow-net", !offline);
    if (trusted) return { execArgv, env, denials: undefined };
    const paths = this.#mustBeDenied(files).filter((path) => !read.some((grant) => covers(grant, path)));
    return { execArgv, env, denials: { of: name, paths, network: offline } };
  }

  /** What a thread tries to read, unless it was granted. */
  #mustBeDenied(files: readonly string[]): string[] {
    const secrets = [process.cwd(), ...files.map(packageRoot)].map((folder) => join(folder, ".env"));
    return [...new Set([...secrets, ...(this.#store === undefined ? [] : [join(this.#store, "data.mdb")])])];
  }

  #readBy(file: string): readonly string[] {
    const real = realPath(file);
    if (this.#store !== undefined && isWithin(this.#store, real))
      throw invalid(`the module ${file} lies in the folder of the store, which no plugin or tool may read: move it`);
    const folder = dirname(real);
    const readable = this.#readable.get(folder) ?? readableBy(real, this.#store);
    this.#readable.set(folder, readable);
    return [file, real, ...readable];
  }
}

function environment(names: readonly string[]): Record<string, string> {
  const env: Record<string, string> = {};
  for (const name of names) {
    const value = process.env[name];
    if (value !== undefined) env[name] = value;
  }
  return env;
}

/**
 * The grants of paths, of which those in `asked` may not be there yet. Node takes such a path for a file, and would refuse
 * what is in a folder that is made later; so it is granted as both, the file first, which Node 22 and 24 need.
 */
function grantsOf(flag: string, paths: readonly string[], asked: readonly string[]): string[] {
  return paths.flatMap((path) => {
    const isLater = asked.includes(path) && !path.endsWith("*") && !existsSync(path);
    return isLater ? [`${flag}=${path}`, `${flag}=${join(path, "*")}`] : [`${flag}=${path}`];
  });
}
