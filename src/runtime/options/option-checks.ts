import { isAbsolute, resolve } from "node:path";
import { pathToFileURL } from "node:url";
import { invalidOptions as invalid, isRecord, unknownField } from "../../kernel/index.js";

/** A module URL from what a host writes: a URL, a `file:` string, an absolute path or one that starts with a dot. */
export function moduleUrl(module: unknown, what: string): string {
  if (module instanceof URL) return module.href;
  if (typeof module === "string" && isModule(module))
    return /^(file|data):/.test(module) ? module : pathToFileURL(resolve(module)).href;
  const hint = 'new URL("./x.js", import.meta.url), or import.meta.resolve("package") for a package';
  throw invalid(`${what} needs a module, named by URL: ${hint}`);
}

/** Does a text name a module, as a URL or as a path? */
export function isModule(text: string): boolean {
  return /^(file|data):/.test(text) || isAbsolute(text) || text.startsWith(".");
}

export function positive(value: number | undefined, fallback: number, what: string): number {
  if (value === undefined) return fallback;
  if (!Number.isSafeInteger(value) || value < 1)
    throw invalid(
      `${what} must be a whole number from 1, not ${typeof value === "string" ? JSON.stringify(value) : String(value)}`,
    );
  return value;
}

export function positiveOrNull(value: number | null | undefined, fallback: number | null, what: string): number | null {
  if (value === undefined || value === null) return value === null ? null : fallback;
  return positive(value, value, what);
}

export function flag(value: boolean | undefined, fallback: boolean, what: string): boolean {
  if (value === undefined) return fallback;
  if (typeof value !== "boolean") throw invalid(`${what} must be true or false, not ${JSON.stringify(value)}`);
  return value;
}

export function text(value: string | undefined, what: string): string {
  if (value === undefined) return "";
  if (typeof value !== "string") throw invalid(`${what} must be a string`);
  return value;
}

/** Refuses a field that is none of those known: it is mostly a spelling mistake, and would do nothing. */
export function checkFields(given: object, known: Readonly<Record<string, true>>, what: string): void {
  const problem = unknownField(given, known, what, "option");
  if (problem !== undefined) throw invalid(problem);
}

/** Options of a call: an object, and nothing in it that nobody knows. */
export function checkCallOptions(given: unknown, known: Readonly<Record<string, true>>, what: string): void {
  if (!isRecord(given)) throw invalid(`${what} takes an object of options, not ${kindOf(given)}`);
  checkFields(given, known, what);
}

/** What somebody gave, in a word. */
export function kindOf(value: unknown): string {
  if (value === null || value === undefined) return String(value);
  return Array.isArray(value) ? "a list" : `a ${typeof value}`;
}

export { invalid };
