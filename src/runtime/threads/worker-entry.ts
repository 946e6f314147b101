import { existsSync, readFileSync } from "node:fs";
import { fileURLToPath, pathToFileURL } from "node:url";
import { TroupeError } from "../../kernel/index.js";
import { packageRoot } from "../options/index.js";

/** The root of Troupe's package once it was found: a running program's does not move. */
let troupe: string | undefined;

/**
 * The built file a thread of this kind starts with, looked up from the root of Troupe's package: the code that asks
 * stands in whichever file the build put it. A program whose bundler took Troupe into its own files has no such entry.
 */
export function workerEntry(kind: "session" | "plugin" | "store" | "processes" | "tool"): URL {
  // A bundler that writes CommonJS leaves no `import.meta.url`.
  const root = troupe ?? (import.meta.url === undefined ? "" : packageRoot(fileURLToPath(import.meta.url)));
  const entry = `${root}/dist/lib/workers/${kind}.${kind === "plugin" || kind === "tool" ? "js" : "cjs"}`;
  if (existsSync(entry)) {
    if (troupe === undefined && JSON.parse(readFileSync(`${root}/package.json`, "utf8")).name === "troupe")
      troupe = root;
    if (troupe !== undefined) return pathToFileURL(entry);
  }
  throw new TroupeError(
    "installation_broken",
    `Troupe cannot start its threads: ${entry} is not a file of Troupe. If a bundler made this program, leave Troupe out of the bundle (esbuild: --external:troupe) and install it beside the program; otherwise install Troupe again. See docs/bundling.md.`,
    { details: { entry } },
  );
}
