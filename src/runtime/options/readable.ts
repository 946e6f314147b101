import { existsSync, readdirSync, readFileSync, realpathSync } from "node:fs";
import { dirname, join, relative } from "node:path";
import { isWithin, realPath } from "../../wire/index.js";

/** Packages of a workspace that one package may lead to, by what they depend on. */
const MOST_PACKAGES = 256;

/**
 * What importing a module reads: the entries of its package without those whose names begin with a dot and without the
 * store, the packages of its workspace it depends on in the same way, and the `node_modules` above them all.
 */
export function readableBy(file: string, store: string | undefined): string[] {
  const roots = [packageRoot(file)];
  const modules = new Set<string>();
  const readable: string[] = [];
  for (let at = 0; at < roots.length; at++) {
    const root = roots[at] as string;
    for (const folder of nodeModulesAbove(root)) modules.add(folder);
    readable.push(...entriesOf(root, { store, kept: file, installed: false }));
    for (const dependency of dependenciesOf(root)) {
      if (roots.length === MOST_PACKAGES) break;
      const isKnown = roots.includes(dependency) || [...modules].some((folder) => isWithin(folder, dependency));
      if (!isKnown) roots.push(dependency);
    }
  }
  for (const folder of modules) {
    if (store !== undefined && isWithin(folder, store))
      readable.push(...entriesOf(folder, { store, kept: file, installed: true }));
    else readable.push(join(folder, "*"));
  }
  return readable;
}

/** What Troupe's own threads read of its package. */
export function readableOfTroupe(root: string): string[] {
  const modules = nodeModulesAbove(root).map((folder) => join(folder, "*"));
  return [join(root, "package.json"), join(root, "dist", "*"), ...modules];
}

/** The nearest folder with a package.json, or the file's own folder. */
export function packageRoot(file: string): string {
  const start = dirname(existsSync(file) ? realpathSync(file) : file);
  for (let folder = start; ; folder = dirname(folder)) {
    if (existsSync(join(folder, "package.json"))) return folder;
    if (folder === dirname(folder)) return start;
  }
}

interface EntryRules {
  /** Neither it nor what contains it is an entry. */
  readonly store: string | undefined;
  /** A file that is readable: a folder that is left out for its name or for the store is entered when it holds this. */
  readonly kept: string;
  /** It is a `node_modules`, which is made of links and folders with dots. */
  readonly installed: boolean;
}

function entriesOf(folder: string, rules: EntryRules): string[] {
  const { store, kept, installed } = rules;
  const entries: string[] = [];
  for (const entry of list(folder)) {
    const path = join(folder, entry.name);
    // Node would read the star as any name.
    if (entry.name === "node_modules" || entry.name.includes("*")) continue;
    const real = entry.isSymbolicLink() ? realPath(path) : path;
    const holdsStore = store !== undefined && (isWithin(real, store) || isWithin(store, real));
    // A link is followed by whoever opens it: one that leads out of the package, or to what is left out, is no entry.
    const leadsOut = real !== path && (!isWithin(folder, real) || relative(folder, real).startsWith("."));
    const isLeftOut = !installed && (leadsOut || entry.name.startsWith("."));
    if (isLeftOut || holdsStore) {
      if (!leadsOut && isWithin(path, kept) && path !== kept) entries.push(...entriesOf(path, rules));
      continue;
    }
    entries.push(entry.isFile() ? path : join(path, "*"));
  }
  return entries;
}

function list(folder: string) {
  try {
    return readdirSync(folder, { withFileTypes: true });
  } catch {
    return [];
  }
}

function nodeModulesAbove(root: string): string[] {
  const found: string[] = [];
  for (let folder = root; folder !== dirname(folder); folder = dirname(folder)) {
    const candidate = join(folder, "node_modules");
    if (existsSync(candidate)) found.push(candidate, realpathSync(candidate));
  }
  return [...new Set(found)];
}

/** Where the packages are that a package names, links followed. */
function dependenciesOf(root: string): string[] {
  const found: string[] = [];
  for (const name of dependencyNames(join(root, "package.json"))) {
    for (let folder = root; ; folder = dirname(folder)) {
      const candidate = join(folder, "node_modules", name);
      if (existsSync(candidate)) {
        found.push(realpathSync(candidate));
        break;
      }
      if (folder === dirname(folder)) break;
    }
  }
  return found;
}

function dependencyNames(manifest: string): string[] {
  try {
    const { dependencies, peerDependencies, optionalDependencies } = JSON.parse(readFileSync(manifest, "utf8"));
    return Object.keys({ ...dependencies, ...peerDependencies, ...optionalDependencies });
  } catch {
    return [];
  }
}
