import { messageOf, TroupeError } from "../kernel/index.js";

/**
 * Imports a module named by URL and gives its default export. Errors say which of the two things went wrong:
 * `<what>_module_not_found` or `<what>_module_invalid`.
 */
export async function importDefault(url: string, what: "plugin" | "tool" | "model"): Promise<unknown> {
  let namespace: Record<string, unknown>;
  try {
    namespace = (await import(url)) as Record<string, unknown>;
  } catch (cause) {
    if (isMissing(cause, url)) {
      throw new TroupeError(
        `${what}_module_not_found`,
        `There is no module at ${url}. Check the URL of this ${what}.`,
        { cause, details: { module: url } },
      );
    }
    throw new TroupeError(
      `${what}_module_invalid`,
      `The ${what} module ${url} could not be loaded: ${messageOf(cause)}`,
      { cause, details: { module: url } },
    );
  }
  if (namespace.default === undefined) {
    throw new TroupeError(
      `${what}_module_invalid`,
      `The ${what} module ${url} has no default export. Export the ${what} as default.`,
      { details: { module: url } },
    );
  }
  return namespace.default;
}

/** Only the module itself missing counts: a missing import inside it is that module's error. */
function isMissing(cause: unknown, url: string): boolean {
  if (typeof cause !== "object" || cause === null || (cause as { code?: unknown }).code !== "ERR_MODULE_NOT_FOUND")
    return false;
  const { url: missing } = cause as { url?: unknown };
  return missing === undefined ? messageOf(cause).includes(`'${url}'`) : missing === url;
}
