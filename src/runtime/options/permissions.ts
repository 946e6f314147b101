import { existsSync, realpathSync } from "node:fs";
import { dirname, join, resolve, sep } from "node:path";
import { fileURLToPath } from "node:url";

/** What an isolated plugin may do beyond computing. Network access cannot be denied to a thread before Node 26. */
export interface Permissions {
  /** Files and folders it may read besides its own package. */
  readonly read?: readonly string[];
  readonly write?: readonly string[];
  readonly childProcess?: boolean;
  readonly worker?: boolean;
  readonly addons?: boolean;
}

/**
 * Node's permission model for the threads of a runtime. It is a seat belt against mistakes, not a sandbox against malice. A
 * plugin may always read what its imports need: Troupe, its own package, and the `node_modules` of both. Where those are is
 * looked up once for each package: a hundred plugins of one package need not ask the disk a hundred times.
 */
export class ThreadPermissions {
  readonly #model: readonly string[];
  readonly #addons: boolean;
  readonly #troupe = packageRoot(fileURLToPath(import.meta.url));
  /** By the root of a package: what importing from it reads. */
  readonly #folders = new Map<string, readonly string[]>();

  constructor() {
    const { allowedNodeEnvironmentFlags: known } = process;
    this.#model = [
      known.has("--permission") ? "--permission" : "--experimental-permission",
      "--disable-warning=ExperimentalWarning",
      "--disable-warning=SecurityWarning",
    ];
    this.#addons = known.has("--allow-addons");
  }

  /** The flags of a thread that runs this module. */
  flags(module: string, permissions: Permissions | "all"): string[] {
    if (permissions === "all") return [];
    const flags = [...this.#model];
    const own = module.startsWith("file:") ? this.#readBy(packageRoot(fileURLToPath(module))) : [];
    const folders = [...this.#readBy(this.#troupe), ...own];
    for (const path of withoutNested([...folders, ...granted(permissions.read)])) flags.push(`--allow-fs-read=${path}`);
    for (const path of withoutNested(granted(permissions.write))) flags.push(`--allow-fs-write=${path}`);
    if (permissions.childProcess === true) flags.push("--allow-child-process");
    if (permissions.worker === true) flags.push("--allow-worker");
    if (permissions.addons === true && this.#addons) flags.push("--allow-addons");
    return flags;
  }

  #readBy(root: string): readonly string[] {
    const known = this.#folders.get(root);
    if (known !== undefined) return known;
    const folders = [root, ...nodeModulesAbove(root)].map((folder) => join(folder, "*"));
    this.#folders.set(root, folders);
    return folders;
  }
}

function granted(paths: readonly string[] | undefined): string[] {
  return (paths ?? []).map((path) => (path.endsWith("*") ? path : resolve(path)));
}

/** The nearest folder with a package.json, or the file's own folder. */
export function packageRoot(file: string): string {
  const start = dirname(existsSync(file) ? realpathSync(file) : file);
  for (let folder = start; ; folder = dirname(folder)) {
    if (existsSync(join(folder, "package.json"))) return folder;
    if (folder === dirname(folder)) return start;
  }
}

function nodeModulesAbove(root: string): string[] {
  const found: string[] = [];
  for (let folder = root; folder !== dirname(folder); folder = dirname(folder)) {
    const candidate = join(folder, "node_modules");
    if (existsSync(candidate)) found.push(candidate, realpathSync(candidate));
  }
  return found;
}

/** Node 20 aborts the whole process when one granted path contains another: keep the outermost only. */
function withoutNested(paths: readonly string[]): string[] {
  const plain = (path: string) => (path.endsWith(`${sep}*`) ? path.slice(0, -1) : path);
  const unique = [...new Set(paths)].sort((a, b) => plain(a).length - plain(b).length);
  const kept: string[] = [];
  for (const path of unique) {
    if (!kept.some((outer) => plain(path) === plain(outer) || `${plain(path)}${sep}`.startsWith(plain(outer))))
      kept.push(path);
  }
  return kept;
}
