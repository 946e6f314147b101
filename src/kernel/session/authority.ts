import { TroupeError } from "../errors.js";
import { type Json, sameJson } from "../json.js";
import { type ToolSpec, toolIdOf } from "../tools/index.js";
import type { Authority, CatalogOverlay } from "./create-session.js";

/** What a session was made with: what it may not do, and what is taken out of its tool catalog. */
export interface StoredAuthority {
  readonly authority: Authority;
  readonly catalog: CatalogOverlay;
}

export const NO_AUTHORITY: StoredAuthority = Object.freeze({ authority: {}, catalog: { remove: [] } });

/**
 * A child can narrow what its parent could do, never widen it. `mayDrop`: may a child do without this plugin?
 *
 * @example
 * narrowAuthority(NO_AUTHORITY, { authority: { hiddenTools: ["shell"] } }, () => false); // the child has no shell
 */
export function narrowAuthority(
  parent: StoredAuthority,
  { authority = {}, catalog }: { readonly authority?: Authority; readonly catalog?: CatalogOverlay },
  mayDrop: (pluginId: string) => boolean,
): StoredAuthority {
  for (const pluginId of authority.withoutPlugins ?? []) if (!mayDrop(pluginId)) throw notDroppable(pluginId);
  const withoutPlugins = union(parent.authority.withoutPlugins, authority.withoutPlugins);
  const tools = narrowTools(parent.authority.tools, authority.tools);
  const hiddenTools = union(parent.authority.hiddenTools, authority.hiddenTools);
  const subagent = narrowSubagent(parent.authority.subagent, authority.subagent);
  const { pluginOptions } = authority;
  const merged: Authority = {
    ...(hiddenTools.length > 0 && { hiddenTools }),
    ...(tools !== undefined && { tools }),
    ...(subagent !== undefined && { subagent }),
    ...(withoutPlugins.length > 0 && { withoutPlugins }),
    ...(pluginOptions !== undefined
      ? { pluginOptions: { ...parent.authority.pluginOptions, ...pluginOptions } }
      : parent.authority.pluginOptions !== undefined && { pluginOptions: parent.authority.pluginOptions }),
  };
  // The overlay is inherited, or replaced as a whole: unlike authority it is no promise.
  return { authority: merged, catalog: catalog ?? parent.catalog };
}

/** Nothing is kept from the session: there is nothing to store of it. */
export function isUnlimited({ authority, catalog }: StoredAuthority): boolean {
  return Object.keys(authority).length === 0 && catalog.remove.length === 0;
}

/** No definitions mean no limit, so an empty list must not lift the parent's. */
function narrowTools(parent: Authority["tools"] = [], asked: Authority["tools"] = []): Authority["tools"] {
  if (asked.length === 0) return parent.length === 0 ? undefined : parent;
  const stranger = parent.length === 0 ? undefined : asked.find((tool) => !parent.some((own) => sameTool(own, tool)));
  if (stranger === undefined) return asked;
  throw new TroupeError(
    "authority_widened",
    `The parent session has no such tool ${stranger.name} to give to a child: name, id and schema must be its own.`,
    { details: { tool: stranger.name } },
  );
}

/**
 * A subagent's children are no higher up, reach no deeper and have its capability: what another capability allows is
 * known to plugins only, so it cannot be told to be less.
 */
function narrowSubagent(parent: Authority["subagent"], asked = parent): Authority["subagent"] {
  if (parent === undefined || asked === undefined) return asked;
  const { capability, depth, maxDepth } = asked;
  if (capability === parent.capability && depth >= parent.depth && maxDepth <= parent.maxDepth) return asked;
  throw new TroupeError(
    "authority_widened",
    `The parent session is a subagent with capability ${parent.capability}, depth ${parent.depth} of ${parent.maxDepth}; a child keeps the capability, cannot have a lower depth or a higher maxDepth.`,
    { details: { parent: { ...parent }, asked: { ...asked } } },
  );
}

/** Under another id a name is another tool, and under another schema it may be asked for more. */
function sameTool(a: ToolSpec, b: ToolSpec): boolean {
  // A schema is JSON.
  return a.name === b.name && toolIdOf(a) === toolIdOf(b) && sameJson(a.inputSchema as Json, b.inputSchema as Json);
}

function union(a: readonly string[] = [], b: readonly string[] = []): string[] {
  return [...new Set([...a, ...b])].sort();
}

/** What watches over the parent watches over the child, unless the host said that it need not. */
function notDroppable(pluginId: string): TroupeError {
  return new TroupeError(
    "plugin_not_droppable",
    `A child session cannot do without plugin ${pluginId}. Mark its entry optionalInChildren to allow it.`,
    { details: { pluginId } },
  );
}
