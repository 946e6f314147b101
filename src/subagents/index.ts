/**
 * Subagents: a plugin in the box with which the model has agents of its own, child sessions on other workers. An optional
 * part: it is a plugin like any other, and uses nothing that others could not.
 *
 * @example
 * import { subagents } from "troupe/subagents";
 * const troupe = await createTroupe({ plugins: [{ module: subagents, options: { maxDepth: 1 } }] });
 */
export type { SubagentsOptions } from "./options.js";
export { default } from "./plugin.js";

/** The plugin's module: what the host's entry names. */
export const subagents: URL = new URL(import.meta.url);
