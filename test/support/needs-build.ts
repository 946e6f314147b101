import { existsSync, readdirSync, readFileSync } from "node:fs";
import { dirname, join, relative } from "node:path";

/** A program, a thread of the package, or the package itself: none of them is there before `npm run build`. */
const BUILT = /\bdist\/|["']troupe(\/\w+)?["']|\.mjs\b|workers\//;

/** Test files under `root/test` that use what the build makes, by themselves or by a file of the tests they import. */
export function needsBuild(root: string): string[] {
  const known = new Map<string, boolean>();
  const isBuilt = (file: string): boolean => {
    const before = known.get(file);
    if (before !== undefined) return before;
    known.set(file, false);
    const text = readFileSync(file, "utf8");
    const imported = [...text.matchAll(/from "(\.[^"]*)\.js"/g)].map(([, path]) => join(dirname(file), `${path}.ts`));
    const built =
      BUILT.test(text) ||
      imported.some((path) => path.startsWith(join(root, "test")) && existsSync(path) && isBuilt(path));
    known.set(file, built);
    return built;
  };
  return readdirSync(join(root, "test"), { recursive: true, encoding: "utf8" })
    .filter((name) => name.endsWith(".test.ts"))
    .map((name) => join(root, "test", name))
    .filter(isBuilt)
    .map((file) => relative(root, file));
}
