import { refusal } from "../errors.js";
import { isRecord } from "../json.js";
import { toolsUnknown } from "../refusals.js";
import { type ToolSpec, toolIdOf } from "./tools.js";

/**
 * How far a tool is within the model's reach, each step including the ones before: it does not exist (`off`), it can
 * be found (`searchable`), called (`callable`), and is presented (`showcased`).
 */
export type ToolAvailability = "off" | "searchable" | "callable" | "showcased";

const LADDER: readonly ToolAvailability[] = ["off", "searchable", "callable", "showcased"];

/** One tool as a session has it. Says nothing about where the tool comes from, so any source with its id can serve. */
export interface ToolStateEntry {
  readonly spec: ToolSpec;
  /** May the session call it? Of an orphan: may it when its source returns? */
  readonly member: boolean;
  /** Its source is missing: kept, but never a member in effect. */
  readonly orphaned: boolean;
  /** A finer setting than membership; `member` follows from it. */
  readonly availability?: ToolAvailability;
}

/** The tools of a session as plain JSON, by tool id. */
export interface ToolState {
  /** Grows by one with every change; an edited state only applies to the generation it was exported from. */
  readonly generation: number;
  readonly tools: Readonly<Record<string, ToolStateEntry>>;
}

/**
 * A state of these entries, in the one order that makes equal states equal bytes.
 *
 * @example
 * toolStateOf(1, [{ spec: weather, member: true, orphaned: false }]).tools.weather.member; // true
 */
export function toolStateOf(generation: number, entries: Iterable<ToolStateEntry>): ToolState {
  const byId = [...entries].map((entry) => [toolIdOf(entry.spec), entry] as const);
  // fromEntries, not assignment: a tool may be called __proto__.
  return { generation, tools: Object.fromEntries(byId.sort(([a], [b]) => (a < b ? -1 : 1))) };
}

/**
 * Does an availability include this step of the ladder?
 *
 * @example
 * isToolAtLeast("showcased", "callable"); // true
 */
export function isToolAtLeast(availability: ToolAvailability, step: ToolAvailability): boolean {
  return LADDER.indexOf(availability) >= LADDER.indexOf(step);
}

/**
 * The availability an entry has in effect.
 *
 * @example
 * toolAvailabilityOf({ member: true, orphaned: false }); // "showcased"
 * toolAvailabilityOf({ member: true, orphaned: true }); // "off"
 */
export function toolAvailabilityOf({
  member,
  orphaned,
  availability,
}: Pick<ToolStateEntry, "member" | "orphaned" | "availability">): ToolAvailability {
  if (orphaned) return "off";
  return availability ?? (member ? "showcased" : "off");
}

/**
 * The state with these tools, by name, added or taken away. Nothing is in force until the result is applied. A finer
 * availability stays when it already agrees. Throws `tool_unknown` when one of the names is.
 *
 * @example
 * const edited = setToolMembership(tools.exportState(), ["shell"], false);
 * tools.applyState(edited);
 */
export function setToolMembership(state: ToolState, names: readonly string[], present: boolean): ToolState {
  return edit(state, names, (entry) => {
    if (entry.member === present) return entry;
    return { spec: entry.spec, member: present, orphaned: entry.orphaned };
  });
}

/**
 * As {@link setToolMembership} for the availability; null clears it, which makes the tool a plain member again.
 *
 * @example
 * setToolAvailability(state, ["shell"], "searchable"); // can be found, not called
 */
export function setToolAvailability(
  state: ToolState,
  names: readonly string[],
  availability: ToolAvailability | null,
): ToolState {
  return edit(state, names, ({ spec, orphaned }) => {
    if (availability === null) return { spec, member: true, orphaned };
    return { spec, member: isToolAtLeast(availability, "callable"), orphaned, availability };
  });
}

function edit(
  state: ToolState,
  names: readonly string[],
  change: (entry: ToolStateEntry) => ToolStateEntry,
): ToolState {
  const named = idsByName(state);
  const unknown = names.filter((name) => !named.has(name));
  if (unknown.length > 0) {
    throw toolsUnknown(`called ${unknown.join(", ")}`, { names: unknown });
  }
  const ids = new Set(names.flatMap((name) => named.get(name) ?? []));
  const tools = Object.entries(state.tools).map(([id, entry]) => [id, ids.has(id) ? change(entry) : entry] as const);
  return { generation: state.generation, tools: Object.fromEntries(tools) };
}

/** A name means its live tool; only when there is none, the orphans that had it. */
function idsByName({ tools }: ToolState): ReadonlyMap<string, readonly string[]> {
  const named = new Map<string, readonly string[]>();
  const entries = Object.entries(tools);
  for (const [id, { spec, orphaned }] of entries) {
    if (orphaned) named.set(spec.name, [...(named.get(spec.name) ?? []), id]);
  }
  for (const [id, { spec, orphaned }] of entries) {
    if (!orphaned) named.set(spec.name, [id]);
  }
  return named;
}

/**
 * Throws `tool_state_invalid` with the reason unless this is a tool state: it may come from storage or from a plugin.
 *
 * @example
 * checkToolState({ generation: -1, tools: {} });
 * // TroupeError tool_state_invalid: The tool state is invalid: generation must be a non-negative whole number, not -1.
 */
export function checkToolState(state: unknown): ToolState {
  if (!isRecord(state)) throw invalid("it must be an object");
  const { generation, tools } = state;
  if (!Number.isSafeInteger(generation) || (generation as number) < 0) {
    throw invalid(`generation must be a non-negative whole number, not ${String(generation)}`);
  }
  if (!isRecord(tools)) throw invalid("tools must be an object");
  const names = new Set<string>();
  for (const [key, entry] of Object.entries(tools)) {
    const { spec, orphaned } = checkEntry(key, entry);
    if (orphaned) continue;
    if (names.has(spec.name)) throw invalid(`two tools are called ${spec.name}`);
    names.add(spec.name);
  }
  // Every field was looked at above.
  return state as unknown as ToolState;
}

function checkEntry(key: string, entry: unknown): ToolStateEntry {
  const refuse = (why: string) => invalid(`tool ${JSON.stringify(key)} ${why}`);
  if (!isRecord(entry) || !isRecord(entry.spec)) throw refuse("must be an entry with a spec");
  const { member, orphaned, availability } = entry;
  const { id, name, description, inputSchema } = entry.spec;
  if (typeof name !== "string" || name === "") throw refuse("has no name");
  if (id !== undefined && (typeof id !== "string" || id === "")) throw refuse("has an empty id");
  if (typeof description !== "string" || !isRecord(inputSchema)) throw refuse("has no description or no schema");
  const own = toolIdOf({ name, ...(id !== undefined && { id }) });
  if (own !== key) throw refuse(`is filed under another id than its own, ${JSON.stringify(own)}`);
  if (typeof member !== "boolean" || typeof orphaned !== "boolean") {
    throw refuse("must say whether it is a member and whether it is orphaned");
  }
  if (availability !== undefined) {
    if (!isAvailability(availability)) throw refuse(`has no such availability as ${JSON.stringify(availability)}`);
    if (member !== isToolAtLeast(availability, "callable")) {
      throw refuse(`contradicts itself: member is ${member}, availability ${availability}`);
    }
  }
  // Every field was looked at above.
  return entry as unknown as ToolStateEntry;
}

function isAvailability(value: unknown): value is ToolAvailability {
  return (LADDER as readonly unknown[]).includes(value);
}

const invalid = refusal("tool_state_invalid", "The tool state is invalid");
