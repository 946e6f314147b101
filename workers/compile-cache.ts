import module from "node:module";

/**
 * Has V8 keep what it compiles from here on, and take it from there at the next start, where Node can (22.1 and later).
 * Node keeps it in the system's temporary folder; `NODE_DISABLE_COMPILE_CACHE=1` forbids it. A plugin's thread may write
 * nowhere, and has no cache.
 */
export function keepCompiled(): void {
  const { enableCompileCache } = module as { enableCompileCache?: () => unknown };
  enableCompileCache?.();
}

/**
 * Is it for us to keep what a large file was compiled to? On Node 20. Source maps are Node's to resolve, and it does so for
 * what it loads itself.
 */
export function keepsOwnCode(): boolean {
  if ("enableCompileCache" in module || process.env.NODE_DISABLE_COMPILE_CACHE !== undefined) return false;
  const isNode = process.versions.bun === undefined && !("Deno" in globalThis);
  return isNode && !process.sourceMapsEnabled;
}
