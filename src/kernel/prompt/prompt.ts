import { refusal } from "../errors.js";
import { isRecord } from "../json.js";
import { type FieldsOf, unknownField, unknownName } from "../known-names.js";

/** The places of a system prompt, in the order they are sorted. */
export const PROMPT_SLOTS = [
  "intro",
  "execution",
  "guidance",
  "project_instructions",
  "runtime_context",
  "environment",
] as const;
export type PromptSlot = (typeof PROMPT_SLOTS)[number];

export interface PromptContribution {
  readonly slot: PromptSlot;
  readonly content: string;
  readonly title?: string;
  /** Lower comes first inside its slot. Default 0. */
  readonly priority?: number;
  /** Kept only when at least one of these tools can be called; absent or empty: always. */
  readonly tools?: readonly string[];
  /**
   * It changes from turn to turn: it stands behind the history, in a message of its own, so that the provider's cache of
   * everything before it stays good. Default: true in `runtime_context` and `environment`, false in the other slots.
   */
  readonly volatile?: boolean;
}

const VOLATILE_SLOTS: readonly PromptSlot[] = ["runtime_context", "environment"];

/** Does this stand behind the history, and not in the system text? */
export function isVolatile({ slot, volatile = VOLATILE_SLOTS.includes(slot) }: PromptContribution): boolean {
  return volatile;
}

/** Texts the runtime knows: the host's instructions, how the protocol works, what goes with certain tools. */
export type PromptBuiltin = "intro" | "execution" | "guidance";

export type PromptEntry =
  | { readonly text: string }
  | { readonly builtin: PromptBuiltin }
  | { readonly slot: PromptSlot };

export interface PromptSection {
  /** Absent: the entries stand without a heading. */
  readonly title?: string;
  readonly entries: readonly PromptEntry[];
}

/** Where everything stands in a system prompt. Sections nobody filled are left out. */
export type PromptTemplate = readonly PromptSection[];

/** What a layer puts into one slot: behind what earlier layers put there, or instead of it. */
export interface SlotLayer {
  readonly reset?: boolean;
  readonly contributions: readonly Omit<PromptContribution, "slot">[];
}

/** One party's share of the prompt: the runtime's host, the session, the turn. A later layer's template wins. */
export interface PromptLayer {
  readonly template?: PromptTemplate;
  readonly slots?: { readonly [S in PromptSlot]?: SlotLayer };
}

export const DEFAULT_TEMPLATE: PromptTemplate = [
  { entries: [{ builtin: "intro" }, { slot: "intro" }] },
  { title: "Execution", entries: [{ builtin: "execution" }, { slot: "execution" }] },
  {
    title: "Guidance",
    entries: [{ builtin: "guidance" }, { slot: "project_instructions" }, { slot: "guidance" }],
  },
  { title: "Environment", entries: [{ slot: "runtime_context" }, { slot: "environment" }] },
];

export interface PromptInput {
  /** The host's instructions. */
  readonly instructions: string;
  /** How the protocol wants the model to work; empty for nothing. */
  readonly execution?: string;
  /** What plugins and the protocol contribute, under every layer. */
  readonly contributions: readonly PromptContribution[];
  /** The later, the stronger. */
  readonly layers?: readonly PromptLayer[];
  /** Names of the tools that can be called. */
  readonly tools: readonly string[];
}

/** What a model is told beside the conversation. */
export interface RenderedPrompt {
  /** Before the history: the same until somebody changes what it is made of. */
  readonly system: string;
  /** Behind the history; empty when nothing is volatile. */
  readonly volatile: string;
}

/** The prompt: contributions gated, said once, ordered by slot and priority, and put where the template says. */
export function renderPrompt(input: PromptInput): RenderedPrompt {
  const { template, kept, fixed } = piecesOf(input);
  const moving = kept.filter(isVolatile);
  const standing = moving.length === 0 ? kept : kept.filter((item) => !isVolatile(item));
  return {
    system: sectionsOf(template, standing, fixed),
    volatile: moving.length === 0 ? "" : sectionsOf(template, moving, () => []),
  };
}

/** The prompt as releases had it that put what is volatile into the system text as well. */
export function renderUnsplitPrompt(input: PromptInput): string {
  const { template, kept, fixed } = piecesOf(input);
  return sectionsOf(template, kept, fixed);
}

function piecesOf({ instructions, execution = "", contributions, layers = [], tools }: PromptInput) {
  const callable = new Set(tools);
  const kept = prepare(layered(contributions, layers), callable);
  const template = layers.findLast((layer) => layer.template !== undefined)?.template ?? DEFAULT_TEMPLATE;
  const builtins: Record<PromptBuiltin, string> = { intro: instructions, execution, guidance: guidanceFor(callable) };
  const fixed = (entry: Exclude<PromptEntry, { slot: PromptSlot }>): string[] => {
    const text = "text" in entry ? entry.text : builtins[entry.builtin];
    return text.trim() === "" ? [] : [text];
  };
  return { template, kept, fixed };
}

/** The sections that have something to say, under their titles. */
function sectionsOf(
  template: PromptTemplate,
  contributions: readonly PromptContribution[],
  fixed: (entry: Exclude<PromptEntry, { slot: PromptSlot }>) => string[],
): string {
  const sections: string[] = [];
  for (const { title, entries } of template) {
    const body = entries.flatMap((entry) =>
      "slot" in entry ? contributions.filter(({ slot }) => slot === entry.slot).map(render) : fixed(entry),
    );
    if (body.length > 0) sections.push((title === undefined ? body : [`## ${title}`, ...body]).join("\n\n"));
  }
  return sections.join("\n\n");
}

/** Renders a prompt only when something it is made of changed; otherwise the one from before is returned. */
export class PromptCache {
  #last: { readonly input: PromptInput; readonly prompt: RenderedPrompt } | undefined;
  /** How often a prompt was really rendered. */
  renders = 0;

  prompt(input: PromptInput): RenderedPrompt {
    if (this.#last !== undefined && sameInput(this.#last.input, input)) return this.#last.prompt;
    this.renders++;
    const prompt = renderPrompt(input);
    this.#last = { input, prompt };
    return prompt;
  }

  clear(): void {
    this.#last = undefined;
  }
}

const LAYER: FieldsOf<PromptLayer> = { template: true, slots: true };

/** A layer from outside, checked: `invalid_prompt` says what is wrong. */
export function checkPromptLayer(layer: unknown): PromptLayer {
  if (!isRecord(layer))
    throw invalid("a layer is an object with a template or slots; a text for every prompt is `instructions`");
  const unknown = unknownField(layer, LAYER, "a layer", "field");
  if (unknown !== undefined) throw invalid(unknown);
  const { template, slots } = layer;
  if (template !== undefined) checkTemplate(template);
  if (slots === undefined) return layer as PromptLayer;
  if (!isRecord(slots)) throw invalid("slots must be an object");
  for (const [slot, content] of Object.entries(slots)) {
    if (!isSlot(slot)) throw invalid(unknownName(slot, PROMPT_SLOTS, "a prompt", "slot"));
    const usable = isRecord(content) && Array.isArray(content.contributions) && content.contributions.every(hasContent);
    if (!usable) throw invalid(`slot ${slot} needs contributions with their content`);
  }
  return layer as PromptLayer;
}

function checkTemplate(template: unknown): void {
  if (!Array.isArray(template)) throw invalid("a template is a list of sections");
  for (const section of template) {
    const entries: unknown = isRecord(section) ? section.entries : undefined;
    if (!Array.isArray(entries) || !entries.every(isEntry))
      throw invalid("a section has entries, each with a text, a builtin (intro, execution, guidance) or a slot");
  }
}

function isEntry(entry: unknown): boolean {
  if (!isRecord(entry)) return false;
  if (typeof entry.text === "string" || isSlot(entry.slot)) return true;
  return entry.builtin === "intro" || entry.builtin === "execution" || entry.builtin === "guidance";
}

function hasContent(contribution: unknown): boolean {
  if (!isRecord(contribution) || typeof contribution.content !== "string") return false;
  return contribution.volatile === undefined || typeof contribution.volatile === "boolean";
}

function isSlot(slot: unknown): slot is PromptSlot {
  return (PROMPT_SLOTS as readonly unknown[]).includes(slot);
}

/** What goes with tools of a certain meaning, whoever brings them. */
function guidanceFor(callable: ReadonlySet<string>): string {
  return callable.has("ask") ? "When something you need is unclear, call `ask` instead of guessing." : "";
}

/** Everything under every slot, with what a layer resets taken out. */
function layered(
  contributions: readonly PromptContribution[],
  layers: readonly PromptLayer[],
): readonly PromptContribution[] {
  let all = contributions;
  for (const { slots = {} } of layers) {
    for (const [slot, layer] of Object.entries(slots) as [PromptSlot, SlotLayer][]) {
      if (layer.reset === true) all = all.filter((item) => item.slot !== slot);
      all = [...all, ...layer.contributions.map((item) => ({ ...item, slot }))];
    }
  }
  return all;
}

function prepare(contributions: readonly PromptContribution[], callable: ReadonlySet<string>): PromptContribution[] {
  const seen = new Set<string>();
  const kept: PromptContribution[] = [];
  for (const item of contributions) {
    const tools = item.tools ?? [];
    if (tools.length > 0 && !tools.some((tool) => callable.has(tool))) continue;
    const content = item.content.trim();
    if (content === "") continue;
    // The gate is part of the key: the same words for other tools are another contribution.
    const key = JSON.stringify([item.slot, item.priority ?? 0, content, [...tools].sort(), isVolatile(item)]);
    if (seen.has(key)) continue;
    seen.add(key);
    kept.push({ ...item, content });
  }
  const order = (item: PromptContribution) => item.priority ?? 0;
  return kept.sort((a, b) => order(a) - order(b));
}

function render({ title, content }: PromptContribution): string {
  const heading = title?.trim() ?? "";
  return heading === "" ? content : `### ${heading}\n\n${content}`;
}

function sameInput(a: PromptInput, b: PromptInput): boolean {
  return (
    a.instructions === b.instructions &&
    a.execution === b.execution &&
    sameList(a.tools, b.tools) &&
    sameList(a.layers ?? [], b.layers ?? []) &&
    (a.contributions === b.contributions || JSON.stringify(a.contributions) === JSON.stringify(b.contributions))
  );
}

/** By identity: lists and layers that did not change are the same objects from turn to turn. */
function sameList(a: readonly unknown[], b: readonly unknown[]): boolean {
  return a === b || (a.length === b.length && a.every((item, index) => item === b[index]));
}

const invalid = refusal("invalid_prompt", "The prompt cannot be used");
