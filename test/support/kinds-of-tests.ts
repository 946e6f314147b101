import { existsSync, readdirSync, readFileSync } from "node:fs";
import { dirname, join, relative } from "node:path";

/** A program, a thread of the package, or the package itself: none of them is there before `npm run build`. */
const BUILT = /\bdist\/|["']troupe(\/\w+)?["']|\.mjs\b|workers\//;
/** The process itself: what all files of a process share. */
const PROCESS =
  /\bprocess\.(on|once|off|emit|listener|memoryUsage|title|report|exit|kill|_|getActive)|\bglobalThis\b|\bvi\.(stub|spyOn)/;

/** Folders whose files start runtimes and close them, and nothing else. */
const PLAIN =
  /^test\/integration\/(agents|asking|hooks|host-services|mistakes|operations|outside|protocols|schedules|sessions|tasks|tools|triggers|turns|upkeep)\//;

interface Kinds {
  /** They use what the build makes. */
  readonly built: string[];
  /** They do, and may listen to the process or change it: each has one of its own. */
  readonly own: string[];
}

/** Test files under `root/test`, by what they or files of the tests they import mention. */
export function kindsOfTests(root: string): Kinds {
  const mentions = (pattern: RegExp) => {
    const known = new Map<string, boolean>();
    const isFound = (file: string): boolean => {
      const before = known.get(file);
      if (before !== undefined) return before;
      known.set(file, false);
      const text = readFileSync(file, "utf8");
      const imported = [...text.matchAll(/from "(\.[^"]*)\.js"/g)].map(([, path]) => join(dirname(file), `${path}.ts`));
      const found =
        pattern.test(text) ||
        imported.some((path) => path.startsWith(join(root, "test")) && existsSync(path) && isFound(path));
      known.set(file, found);
      return found;
    };
    return isFound;
  };
  const files = readdirSync(join(root, "test"), { recursive: true, encoding: "utf8" })
    .filter((name) => name.endsWith(".test.ts"))
    .map((name) => join(root, "test", name))
    .filter(mentions(BUILT));
  const touchesProcess = mentions(PROCESS);
  const isPlain = (file: string) => PLAIN.test(relative(root, file)) && !touchesProcess(file);
  const namesOf = (some: readonly string[]) => some.map((file) => relative(root, file));
  return { built: namesOf(files.filter(isPlain)), own: namesOf(files.filter((file) => !isPlain(file))) };
}
