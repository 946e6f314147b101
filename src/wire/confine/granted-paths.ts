import { existsSync, realpathSync } from "node:fs";
import { basename, dirname, join, resolve, sep } from "node:path";

/** Whether granting `outer` grants `path` too. Both are as Node reads them: a `*` at the end stands for anything. */
export function covers(outer: string, path: string): boolean {
  const base = path.endsWith(`${sep}*`) ? path.slice(0, -2) : path;
  if (!outer.endsWith("*")) return isWithin(outer, base);
  const prefix = outer.slice(0, -1);
  return base.startsWith(prefix) || `${base}${sep}` === prefix;
}

/** Is it the folder, or something in it? */
export function isWithin(folder: string, path: string): boolean {
  return path === folder || path.startsWith(folder.endsWith(sep) ? folder : `${folder}${sep}`);
}

/** Node 20 aborts the whole process when one granted path contains another: keep the outermost only. */
export function withoutNested(paths: Iterable<string>): string[] {
  const kept: string[] = [];
  for (const path of [...new Set(paths)].sort((a, b) => a.length - b.length || (a < b ? -1 : 1))) {
    if (kept.some((outer) => covers(outer, path))) continue;
    // `/x/a` is shorter than `/x/a/*` and may be a file; `/x/ab*` is longer than `/x/abc`.
    const inner = kept.findIndex((other) => covers(path, other));
    if (inner >= 0) kept.splice(inner, 1);
    kept.push(path);
  }
  return kept;
}

/** With its links followed, as far as it is there. */
export function realPath(path: string): string {
  if (existsSync(path)) return realpathSync(path);
  const parent = dirname(path);
  return parent === path ? path : join(realPath(parent), basename(path));
}

/** As typed, and where that leads to: an import names a file by its real path. */
export function grantedPaths(paths: readonly string[] = []): string[] {
  return paths.flatMap((path) => {
    if (path === "*") return [path];
    const full = resolve(path);
    return existsSync(full) ? [full, realpathSync(full)] : [full];
  });
}
