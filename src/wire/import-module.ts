import { messageOf, TroupeError } from "../kernel/index.js";

/**
 * Imports a module named by URL and gives its default export. Errors say which of the two things went wrong:
 * `<what>_module_not_found` or `<what>_module_invalid`.
 *
 * @example
 * const exported = await importDefault("file:///app/budget.js", "plugin");
 */
export async function importDefault(url: string, what: "plugin" | "tool" | "model"): Promise<unknown> {
  const details = { module: url };
  const invalid = (why: string, cause?: unknown) =>
    new TroupeError(`${what}_module_invalid`, `The ${what} module ${url} cannot be used: ${why}.`, { cause, details });
  if (!URL.canParse(url)) {
    throw invalid(`it is not a URL. Write new URL("./${what}.js", import.meta.url) to name a file beside your own`);
  }
  let namespace: Record<string, unknown>;
  try {
    namespace = (await import(url)) as Record<string, unknown>;
  } catch (cause) {
    // The loader's own error does not tell a missing module from one whose imports are missing.
    if (url.startsWith("file:") && !isThere(url)) {
      const message = `There is no ${what} module at ${url}. Check the URL.`;
      throw new TroupeError(`${what}_module_not_found`, message, { cause, details });
    }
    throw invalid(`importing it failed: ${messageOf(cause)}`, cause);
  }
  if (namespace.default === undefined) throw invalid(`it has no default export. Export the ${what} as default`);
  return namespace.default;
}

/** Node's modules are fetched here and not imported: a thread whose module is there never needs them. */
function isThere(url: string): boolean {
  const { existsSync } = process.getBuiltinModule("node:fs");
  return existsSync(process.getBuiltinModule("node:url").fileURLToPath(url));
}
