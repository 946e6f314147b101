import { messageOf, sentence, TroupeError } from "../kernel/index.js";

type Kind = "plugin" | "tool" | "model";

/**
 * Imports a module named by URL and gives its default export. Errors say which of the two things went wrong:
 * `<what>_module_not_found` or `<what>_module_invalid`.
 *
 * @example
 * const exported = await importDefault("file:///app/budget.js", "plugin");
 */
export async function importDefault(url: string, what: Kind): Promise<unknown> {
  const invalid = (why: string, cause?: unknown) => moduleInvalid(what, url, why, cause);
  if (!URL.canParse(url)) {
    throw invalid(`it is not a URL. Write new URL("./${what}.js", import.meta.url) to name a file beside your own`);
  }
  let namespace: Record<string, unknown>;
  try {
    namespace = (await import(url)) as Record<string, unknown>;
  } catch (cause) {
    // The loader's own error does not tell a missing module from one whose imports are missing.
    if (url.startsWith("file:") && !isThere(url)) {
      const message = `There is no ${what} module at ${url}. Check the URL; a build or a bundler may have put the file elsewhere.`;
      throw new TroupeError(`${what}_module_not_found`, message, { cause, details: { module: url } });
    }
    const place = placeOf(cause);
    throw invalid(`importing it failed${place === undefined ? "" : ` at ${place}`}: ${messageOf(cause)}`, cause);
  }
  if (namespace.default === undefined) throw invalid(`it has no default export. Export the ${what} as default`);
  return namespace.default;
}

/** The error of a module that is there and no use. */
export function moduleInvalid(what: Kind, url: string, why: string, cause?: unknown): TroupeError {
  return new TroupeError(`${what}_module_invalid`, `The ${what} module ${url} cannot be used: ${sentence(why)}`, {
    cause,
    details: { module: url },
  });
}

/** The file and line that an import failed at, as far as Node tells. */
function placeOf(thrown: unknown): string | undefined {
  if (!(thrown instanceof Error)) return undefined;
  if (thrown instanceof SyntaxError) writePlaceInto(thrown);
  const stack = String(thrown.stack);
  const shown = /^(file:\S+:\d+)\n/.exec(stack) ?? /\bat (?:\S+ \()?(file:\S+:\d+):\d+/.exec(stack);
  return shown?.[1];
}

/**
 * Node keeps the place of a syntax error in a module to itself, and neither its message nor its stack has it. The REPL is
 * the one part of Node that a program can ask to write it into the stack; without its help the message has no line.
 */
function writePlaceInto(error: SyntaxError): void {
  if (String(error.stack).startsWith("file:")) return;
  // Confined threads have no process.report, which the REPL wants to write to.
  const isWithoutReport = process.report === undefined;
  try {
    if (isWithoutReport) Object.assign(process, { report: {} });
    const { PassThrough } = process.getBuiltinModule("node:stream");
    const { start } = process.getBuiltinModule("node:repl");
    const streams = { input: new PassThrough(), output: new PassThrough(), prompt: "", terminal: false };
    const server = start({ ...streams, eval: (_code, _context, _file, done) => done(error, undefined) });
    server.emit("line", "0");
    server.close();
  } catch {
    // The error is told all the same.
  } finally {
    if (isWithoutReport) Reflect.deleteProperty(process, "report");
  }
}

/** Node's modules are fetched here and not imported: a thread whose module is there never needs them. */
function isThere(url: string): boolean {
  const { existsSync } = process.getBuiltinModule("node:fs");
  return existsSync(process.getBuiltinModule("node:url").fileURLToPath(url));
}
