import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";

const root = fileURLToPath(new URL("../..", import.meta.url));

/** The text of a file of the repository; undefined when there is none. */
export const textOf = (path: string) =>
  existsSync(join(root, path)) ? readFileSync(join(root, path), "utf8") : undefined;

/** A file that a page names as showing something, and the names it quotes from it: those that follow it, up to the next file. */
export interface Shown {
  readonly path: string;
  readonly names: readonly string[];
}

export function shownBy(cell: string): Shown[] {
  return cell
    .split(/(?=`(?:test|bench|src)\/)/)
    .filter((part) => part.trim() !== "")
    .map((part) => ({
      path: /^`([^`]+)`/.exec(part)?.[1] ?? part,
      names: [...part.matchAll(/"([^"]+)"/g)].map(([, name = ""]) => name),
    }));
}

/** What is wrong with them: no such file, a test file without the name of a test, a name that does not stand there. */
export function unshown(shown: readonly Shown[]): string[] {
  return shown.flatMap(({ path, names }) => {
    const text = textOf(path);
    if (text === undefined) return [`there is no ${path}`];
    if (path.endsWith(".test.ts") && names.length === 0) return [`${path} without the name of a test`];
    return names.filter((name) => !text.includes(name)).map((name) => `${path} has no "${name}"`);
  });
}
