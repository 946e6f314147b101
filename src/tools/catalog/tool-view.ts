import { isToolAtLeast, type ToolAvailability, type ToolSpec, toolIdOf } from "../../kernel/index.js";
import type { ToolRecordView } from "../../plugin/index.js";
import type { RegisteredTool, ToolAbsence } from "../dispatch/index.js";
import { availabilityIn, type ComposedOverlay, type ToolEdits, type ToolGround } from "./tool-edits.js";

/** Everything that decides which tools a session has. */
export interface ViewParts extends ToolGround {
  readonly edits: ToolEdits;
  readonly removed: ReadonlySet<string>;
  readonly overlay: ComposedOverlay;
  /** The only definitions the model may be shown, or none. */
  readonly access: readonly ToolSpec[];
}

/** A tool the session would have, and what is in the way. */
interface Candidate {
  /** As the model is told about it. */
  readonly spec: ToolSpec;
  /** What runs; undefined when its source is missing. */
  readonly tool: RegisteredTool | undefined;
  readonly availability: ToolAvailability;
}

/**
 * The tools of a session that differ from its registry's, worked out once. The order of the layers: state, overlay,
 * access, removals, hides; each only sees what the ones before left.
 */
export class ToolView {
  /** What can be called, ordered by name. */
  readonly specs: readonly ToolSpec[];
  readonly #visible: readonly Candidate[];
  readonly #byName = new Map<string, Candidate>();
  #catalog: readonly ToolRecordView[] | undefined;

  constructor(parts: ViewParts) {
    const { hidden, removed } = parts;
    const all = parts.access.length === 0 ? ownCandidates(parts) : accessCandidates(parts);
    const visible: Candidate[] = [];
    for (const candidate of all) {
      if (isNamedIn(hidden, candidate)) continue;
      const left = isNamedIn(removed, candidate) ? { ...candidate, availability: "off" as const } : candidate;
      this.#byName.set(left.spec.name, left);
      if (isToolAtLeast(left.availability, "searchable")) visible.push(left);
    }
    this.#visible = visible.sort((a, b) => (a.spec.name < b.spec.name ? -1 : 1));
    this.specs = this.#visible.filter(isCallable).map(({ spec }) => spec);
  }

  get(name: string): RegisteredTool | undefined {
    const candidate = this.#byName.get(name);
    return candidate && isCallable(candidate) ? candidate.tool : undefined;
  }

  /** Why `get` finds nothing; undefined also when the view has never heard of the name. */
  whyNot(name: string): ToolAbsence | undefined {
    const candidate = this.#byName.get(name);
    if (candidate === undefined) return undefined;
    if (candidate.tool === undefined) return "orphaned";
    return isCallable(candidate) ? undefined : "unavailable";
  }

  get catalog(): readonly ToolRecordView[] {
    this.#catalog ??= this.#visible.map(({ spec, availability }) => catalogRecord(spec, availability));
    return this.#catalog;
  }
}

const catalogs = new WeakMap<readonly ToolSpec[], readonly ToolRecordView[]>();

/** The catalog of tools that are all showcased; sessions that share their specs share it too. */
export function showcasedCatalog(specs: readonly ToolSpec[]): readonly ToolRecordView[] {
  let catalog = catalogs.get(specs);
  if (catalog === undefined) {
    catalog = specs.map((spec) => catalogRecord(spec, "showcased"));
    catalogs.set(specs, catalog);
  }
  return catalog;
}

function catalogRecord(spec: ToolSpec, availability: ToolAvailability): ToolRecordView {
  const { name, description, inputSchema } = spec;
  return { id: toolIdOf(spec), name, description, inputSchema, availability };
}

function isCallable({ availability }: Candidate): boolean {
  return isToolAtLeast(availability, "callable");
}

/** An alias does not get a tool past what takes its real name away. */
function isNamedIn(names: ReadonlySet<string>, { spec, tool }: Candidate): boolean {
  return names.has(spec.name) || (tool !== undefined && names.has(tool.spec.name));
}

/** The overlay's tools, and those of the base it does not replace. */
function ownCandidates({ base, edits, overlay }: ViewParts): readonly Candidate[] {
  const laid = overlay.tools.map(({ spec, tool }): Candidate => {
    return { spec, tool, availability: tool === undefined ? "off" : availabilityIn(edits, tool) };
  });
  if (!overlay.includeBase) return laid;
  // By name is enough: ids are unique, so the same id is the same tool.
  const replaced = new Set(laid.map(({ spec }) => spec.name));
  const kept = base.tools.filter(({ spec }) => !replaced.has(spec.name));
  return [...laid, ...kept.map((tool) => ({ spec: tool.spec, tool, availability: availabilityIn(edits, tool) }))];
}

/** Exactly the definitions of the access, each run by the tool that has its id, or else its name. */
function accessCandidates(parts: ViewParts): readonly Candidate[] {
  const own = ownCandidates(parts);
  const byId = new Map(own.map((candidate) => [toolIdOf(candidate.spec), candidate]));
  const byName = new Map(own.map((candidate) => [candidate.spec.name, candidate]));
  return parts.access.flatMap((spec): readonly Candidate[] => {
    const found = byId.get(toolIdOf(spec)) ?? onDemandCandidate(parts, spec) ?? byName.get(spec.name);
    if (found?.tool !== undefined) {
      return [{ spec, tool: shownAs(spec, found.tool), availability: found.availability }];
    }
    // Shown even though nothing runs it: the definitions are the authority's word. Unless the context shuts it out.
    const shutOut = found === undefined && !parts.overlay.includeBase;
    return shutOut ? [] : [{ spec, tool: undefined, availability: "showcased" }];
  });
}

/** Naming a tool's id in the access asks for it as an overlay does. */
function onDemandCandidate({ base, overlay }: ViewParts, definition: ToolSpec): Candidate | undefined {
  const tool = base.byId(toolIdOf(definition));
  if (!tool?.onDemand || !overlay.includeBase) return undefined;
  const replaced = overlay.tools.some(({ spec }) => spec.name === tool.spec.name);
  return replaced ? undefined : { spec: tool.spec, tool, availability: "showcased" };
}

/** Still the registered tool, under its own name: its home knows it by no other. */
function shownAs({ inputSchema }: ToolSpec, tool: RegisteredTool): RegisteredTool {
  return inputSchema === tool.spec.inputSchema ? tool : { ...tool, shownSchema: inputSchema };
}
