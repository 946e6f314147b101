import {
  type ToolAvailability,
  type ToolState,
  type ToolStateEntry,
  toolAvailabilityOf,
  toolIdOf,
  toolStateOf,
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
