import {
  duplicateTool,
  type ToolAvailability,
  type ToolSpec,
  type ToolState,
  type ToolStateEntry,
  type TroupeError,
  toolAvailabilityOf,
  toolIdOf,
  toolStateOf,
  toolsUnknown,
} from "../../kernel/index.js";
import type { RegisteredTool, ToolRegistry } from "../dispatch/index.js";

/**
 * What sets the tools of one session apart from its registry's. Sparse: a live tool that is not named is a plain
 * member, so a session that changed nothing shares {@link UNEDITED} with all others.
 */
export interface ToolEdits {
  readonly generation: number;
  /** Live tools that are not plain members, by id. */
  readonly changed: ReadonlyMap<string, ToolStateEntry>;
  /** Tools whose source is missing, by id. */
  readonly orphans: ReadonlyMap<string, ToolStateEntry>;
}

const NOTHING: ReadonlyMap<string, ToolStateEntry> = new Map();
export const UNEDITED: ToolEdits = { generation: 1, changed: NOTHING, orphans: NOTHING };

/** The registry of a session and what its authority hides of it: what edits are edits of. */
export interface ToolGround {
  readonly base: ToolRegistry;
  readonly hidden: ReadonlySet<string>;
}

export function exportEdits({ base, hidden }: ToolGround, { generation, changed, orphans }: ToolEdits): ToolState {
  const live = base.tools.filter(({ spec }) => !hidden.has(spec.name));
  const entries = live.map(
    ({ spec }): ToolStateEntry => changed.get(toolIdOf(spec)) ?? { spec, member: true, orphaned: false },
  );
  return toolStateOf(generation, [...entries, ...orphans.values()]);
}

/**
 * The edits a state means here: entries bind by id, the live spec wins, the others are orphans. What is hidden is
 * dropped before that, so that a tool only the root may have cannot be in the way of a fork.
 */
export function bindState(ground: ToolGround, { generation, tools }: ToolState): ToolEdits {
  const changed = new Map<string, ToolStateEntry>();
  const orphans = new Map<string, ToolStateEntry>();
  for (const [id, { spec: stored, member, availability }] of Object.entries(tools)) {
    const live = resolve(ground.base, id);
    const spec = live?.spec ?? stored;
    if (ground.hidden.has(spec.name)) continue;
    const orphaned = live === undefined;
    if (!orphaned && member && availability === undefined) continue;
    (orphaned ? orphans : changed).set(id, { spec, member, orphaned, ...(availability && { availability }) });
  }
  return {
    generation: Math.max(generation, UNEDITED.generation),
    changed: changed.size === 0 ? NOTHING : changed,
    orphans: orphans.size === 0 ? NOTHING : orphans,
  };
}

/** The edits over another registry; one generation further if the session's tools are not the same as before. */
export function rebindEdits(from: ToolGround, to: ToolGround, edits: ToolEdits): ToolEdits {
  const before = exportEdits(from, edits);
  const rebound = bindState(to, before);
  return sameTools(before, exportEdits(to, rebound)) ? rebound : nextGeneration(rebound);
}

export function nextGeneration(edits: ToolEdits): ToolEdits {
  return { ...edits, generation: edits.generation + 1 };
}

/** The ids of entries that claim to be live and are not. */
export function unknownIds({ base, hidden }: ToolGround, { tools }: ToolState): readonly string[] {
  return Object.entries(tools)
    .filter(([id, { spec, orphaned }]) => !orphaned && !hidden.has(spec.name) && resolve(base, id) === undefined)
    .map(([id]) => id);
}

export function unknownTools(toolIds: readonly string[]): TroupeError {
  return toolsUnknown(`with the id ${toolIds.join(", ")}`, { toolIds });
}

export function availabilityIn({ changed }: ToolEdits, { spec }: RegisteredTool): ToolAvailability {
  const entry = changed.get(toolIdOf(spec));
  return entry === undefined ? "showcased" : toolAvailabilityOf(entry);
}

/** A tool on demand is part of no session's state: it is there when an overlay names it, and only then. */
function resolve(base: ToolRegistry, id: string): RegisteredTool | undefined {
  const tool = base.byId(id);
  return tool?.onDemand ? undefined : tool;
}

function sameTools({ tools: a }: ToolState, { tools: b }: ToolState): boolean {
  const ids = Object.keys(a);
  if (ids.length !== Object.keys(b).length) return false;
  return ids.every((id) => {
    const [before, after] = [a[id], b[id]];
    // Membership and availability move from one to the other unchanged; what is there and what it says does not.
    return before?.orphaned === after?.orphaned && sameText(before?.spec, after?.spec);
  });
}

/** Sources that come again bring equal specs as new objects. */
export function sameText(a: unknown, b: unknown): boolean {
  return a === b || JSON.stringify(a) === JSON.stringify(b);
}

/** Tools a context lays over those of a session: they replace tools of the same id or name. */
export interface ToolOverlay {
  /** Are the session's own tools still there besides? */
  readonly includeBase: boolean;
  /** Registered tools, also those on demand. */
  readonly toolIds: readonly string[];
}

/** An overlay with its tools found. */
export interface ComposedOverlay extends ToolOverlay {
  readonly tools: readonly OverlayTool[];
}

export interface OverlayTool {
  readonly spec: ToolSpec;
  /** Undefined when its source went away. It goes on shadowing: what it replaced must not come back unnoticed. */
  readonly tool: RegisteredTool | undefined;
}

/** The overlay that changes nothing. */
export const NO_OVERLAY: ComposedOverlay = { includeBase: true, toolIds: [], tools: [] };

/** Throws `tool_unknown` or, when two of its tools share a name, `duplicate_tool`. */
export function composeOverlay(base: ToolRegistry, { includeBase, toolIds }: ToolOverlay): ComposedOverlay {
  const unknown = toolIds.filter((id) => base.byId(id) === undefined);
  if (unknown.length > 0) throw unknownTools(unknown);
  const byName = new Map<string, OverlayTool>();
  for (const id of new Set(toolIds)) {
    const tool = base.byId(id);
    if (tool === undefined) continue;
    if (byName.has(tool.spec.name))
      throw duplicateTool(`Two tools of the overlay are called ${tool.spec.name}`, { tool: tool.spec.name, toolIds });
    byName.set(tool.spec.name, { spec: tool.spec, tool });
  }
  if (includeBase && byName.size === 0) return NO_OVERLAY;
  return { includeBase, toolIds: [...toolIds], tools: [...byName.values()] };
}

/** The same overlay over another registry. */
export function rebindOverlay(base: ToolRegistry, overlay: ComposedOverlay): ComposedOverlay {
  if (overlay.tools.length === 0) return overlay;
  const tools = overlay.tools.map(({ spec }): OverlayTool => {
    const tool = base.byId(toolIdOf(spec));
    return { spec: tool?.spec ?? spec, tool };
  });
  return { ...overlay, tools };
}

export function sameOverlay(a: ToolOverlay, b: ToolOverlay): boolean {
  return (
    a.includeBase === b.includeBase &&
    a.toolIds.length === b.toolIds.length &&
    a.toolIds.every((id, at) => id === b.toolIds[at])
  );
}

/** Does the model see the same tools, and are the same ones there to be called? */
export function sameOverlayTools({ tools: a }: ComposedOverlay, { tools: b }: ComposedOverlay): boolean {
  return a.every(
    ({ spec, tool }, at) => sameText(spec, b[at]?.spec) && (tool === undefined) === (b[at]?.tool === undefined),
  );
}
