import {
  checkToolState,
  duplicateTool,
  setToolAvailability,
  setToolMembership,
  type ToolAvailability,
  type ToolSpec,
  type ToolState,
  TroupeError,
} from "../../kernel/index.js";
import type { ToolRecordView } from "../../plugin/index.js";
import type { ToolAbsence, ToolLookup } from "../dispatch/index.js";
import { checkToolSpec, type RegisteredTool, type ToolRegistry } from "../dispatch/index.js";
import {
  bindState,
  composeOverlay,
  exportEdits,
  NO_OVERLAY,
  nextGeneration,
  rebindEdits,
  rebindOverlay,
  sameOverlay,
  sameOverlayTools,
  type ToolOverlay,
  UNEDITED,
  unknownIds,
  unknownTools,
} from "./tool-edits.js";
import { showcasedCatalog, ToolView } from "./tool-view.js";

export interface SessionToolsOptions {
  /** Names the session's authority takes away, for good: nothing below brings them back. */
  readonly hidden?: Iterable<string>;
  /** When there are any, the model is shown exactly these definitions; registered tools run them, by id or by name. */
  readonly access?: readonly ToolSpec[];
  /** What the session stored, or what a fork inherits; see {@link SessionTools.restoreState}. */
  readonly state?: ToolState;
}

const NO_NAMES: ReadonlySet<string> = new Set();
const NO_ACCESS: readonly ToolSpec[] = [];

/**
 * The tools of one session over a registry it shares with others: which of them it may call, what a context lays over
 * them, what is taken away. A session that changed nothing holds nothing but references.
 *
 * @example
 * const tools = new SessionTools(registry, { hidden: ["shell"] });
 * tools.setMembership(["weather"], false); // 2, the new generation
 * tools.get("weather"); // undefined
 * tools.whyNot("weather"); // "unavailable"
 */
export class SessionTools implements ToolLookup {
  readonly #hidden: ReadonlySet<string>;
  readonly #access: readonly ToolSpec[];
  #base: ToolRegistry;
  #edits = UNEDITED;
  #overlay = NO_OVERLAY;
  #overlayRevision = 0;
  #removed = NO_NAMES;
  /** Only of a session whose tools differ from its registry's; made when first asked for. */
  #view: ToolView | undefined;
  /** Of any other; kept here because the registry may forget the array. */
  #shared: readonly ToolSpec[] | undefined;

  constructor(base: ToolRegistry, { hidden, access = NO_ACCESS, state }: SessionToolsOptions = {}) {
    this.#base = base;
    this.#hidden = namesOf(hidden);
    this.#access = checkAccess(access);
    if (state !== undefined) this.restoreState(state);
  }

  /** Grows by one with every change of the state. */
  get generation(): number {
    return this.#edits.generation;
  }

  /** The ids of tools that are kept though their source is missing. */
  get orphans(): readonly string[] {
    return [...this.#edits.orphans.keys()].sort();
  }

  /** Grows by one with every change of the overlay. */
  get overlayRevision(): number {
    return this.#overlayRevision;
  }

  /**
   * The state as it is, with tools that are not members and with orphans, without what is hidden. A later change does
   * not show in it.
   */
  exportState(): ToolState {
    return exportEdits(this.#ground, this.#edits);
  }

  /**
   * Puts an edited state in force and says its generation. Live tools it does not name are members, orphans it does
   * not name are forgotten. Throws and changes nothing: `tool_state_stale` when the state changed since it was
   * exported, `tool_state_invalid`, `tool_unknown` when an entry is neither registered nor marked as orphaned.
   *
   * @example
   * tools.applyState(setToolMembership(tools.exportState(), ["weather"], false)); // 2
   */
  applyState(next: ToolState): number {
    // Before anything else: whoever lost the race should export again, not repair what they have.
    if (next?.generation !== this.generation) throw stale(this.generation, next?.generation);
    checkToolState(next);
    const unknown = unknownIds(this.#ground, next);
    if (unknown.length > 0) throw unknownTools(unknown);
    this.#edits = nextGeneration(bindState(this.#ground, next));
    this.#forgetViews();
    return this.generation;
  }

  /**
   * Takes up a stored or inherited state, its generation included. What cannot be found by id is kept as an orphan
   * until its source returns. Throws `tool_state_invalid`.
   *
   * @example
   * tools.restoreState(stored);
   * tools.orphans; // ["acme.search"]: its plugin is not installed any more
   */
  restoreState(snapshot: ToolState): void {
    this.#edits = bindState(this.#ground, checkToolState(snapshot));
    this.#forgetViews();
  }

  /**
   * Goes on over other sources: orphans found there are back with the membership they had, tools not found there are
   * orphans from now on. A generation further if any of that shows.
   *
   * @example
   * tools.rebind(new ToolRegistry([...registered, search]));
   */
  rebind(base: ToolRegistry): void {
    if (base === this.#base) return;
    const edits = rebindEdits(this.#ground, { base, hidden: this.#hidden }, this.#edits);
    const overlay = rebindOverlay(base, this.#overlay);
    const onlyOverlay = edits.generation === this.generation && !sameOverlayTools(this.#overlay, overlay);
    this.#edits = onlyOverlay ? nextGeneration(edits) : edits;
    this.#overlay = overlay;
    this.#base = base;
    this.#forgetViews();
  }

  /** Adds tools, by name, or takes them away; says the new generation. Throws `tool_unknown`. */
  setMembership(names: readonly string[], present: boolean): number {
    return this.applyState(setToolMembership(this.exportState(), names, present));
  }

  /** Sets how far tools, by name, are within reach; null makes them plain members. Throws `tool_unknown`. */
  setAvailability(names: readonly string[], availability: ToolAvailability | null): number {
    return this.applyState(setToolAvailability(this.exportState(), names, availability));
  }

  /**
   * Lays tools over the session's own; false when this overlay is there already. Throws and changes nothing:
   * `tool_unknown`, `duplicate_tool` when two tools of the overlay share a name.
   *
   * @example
   * tools.setOverlay({ includeBase: false, toolIds: ["acme.sandbox"] }); // true: nothing but the sandbox
   */
  setOverlay(overlay: ToolOverlay): boolean {
    if (sameOverlay(overlay, this.#overlay)) return false;
    this.#overlay = composeOverlay(this.#base, overlay);
    this.#overlayRevision++;
    this.#forgetViews();
    return true;
  }

  /** Lays an overlay again that was there before: of its tools those that still are, the others are left out. */
  layAgain({ includeBase, toolIds }: ToolOverlay): void {
    this.setOverlay({ includeBase, toolIds: toolIds.filter((id) => this.#base.byId(id) !== undefined) });
  }

  /** Replaces the names taken out of the catalog, unknown ones included; false when they are the same. */
  setRemoved(names: Iterable<string>): boolean {
    const removed = namesOf(names);
    if (sameNames(removed, this.#removed)) return false;
    this.#removed = removed;
    this.#forgetViews();
    return true;
  }

  /** The tool that answers to this name now. */
  get(name: string): RegisteredTool | undefined {
    if (!this.#isPlain) return this.#composed.get(name);
    return this.#hidden.has(name) ? undefined : this.#base.get(name);
  }

  /** Why `get` does not find it; undefined when it does. A hidden tool is unknown: its name says too much already. */
  whyNot(name: string): ToolAbsence | undefined {
    if (this.#hidden.has(name)) return "unknown";
    if (this.get(name) !== undefined) return undefined;
    const known = this.#isPlain ? undefined : this.#composed.whyNot(name);
    if (known !== undefined) return known;
    // Beyond its definitions an authority admits to nothing.
    if (this.#access.length > 0) return "unknown";
    // Only an overlay without the base keeps these out of the view.
    if (this.#base.get(name) !== undefined) return "unavailable";
    for (const { spec } of this.#edits.orphans.values()) if (spec.name === name) return "orphaned";
    return "unknown";
  }

  /** What the model can call, ordered by name; the same array until something changes. */
  specs(): readonly ToolSpec[] {
    if (!this.#isPlain) return this.#composed.specs;
    this.#shared ??= this.#base.specs(this.#hidden);
    return this.#shared;
  }

  /** What can be found by searching, ordered by name; the same array until something changes. */
  catalog(): readonly ToolRecordView[] {
    return this.#isPlain ? showcasedCatalog(this.specs()) : this.#composed.catalog;
  }

  get #ground() {
    return { base: this.#base, hidden: this.#hidden };
  }

  /** Nothing but the authority's hides sets the tools apart from the registry's. */
  get #isPlain(): boolean {
    return (
      this.#edits.changed.size === 0 &&
      this.#overlay === NO_OVERLAY &&
      this.#removed.size === 0 &&
      this.#access.length === 0
    );
  }

  get #composed(): ToolView {
    this.#view ??= new ToolView({
      ...this.#ground,
      edits: this.#edits,
      overlay: this.#overlay,
      removed: this.#removed,
      access: this.#access,
    });
    return this.#view;
  }

  #forgetViews(): void {
    this.#view = undefined;
    this.#shared = undefined;
  }
}

function namesOf(names: Iterable<string> | undefined): ReadonlySet<string> {
  if (names === undefined) return NO_NAMES;
  const set = new Set(names);
  return set.size === 0 ? NO_NAMES : set;
}

function sameNames(a: ReadonlySet<string>, b: ReadonlySet<string>): boolean {
  return a.size === b.size && [...a].every((name) => b.has(name));
}

/** As a registry checks its tools: a call must not meet a broken definition. */
function checkAccess(access: readonly ToolSpec[]): readonly ToolSpec[] {
  const names = new Set<string>();
  for (const { name } of access.map(checkToolSpec)) {
    if (names.has(name)) throw duplicateTool(`Two definitions of the tool access are called ${name}`, { tool: name });
    names.add(name);
  }
  return access;
}

function stale(expected: number, actual: unknown): TroupeError {
  return new TroupeError(
    "tool_state_stale",
    `The tool state is of generation ${String(actual)}, the session is at ${expected}: export it again.`,
    { details: { expected, actual } },
  );
}
