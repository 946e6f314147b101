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
}

interface Section {
  readonly title: string | undefined;
  readonly slots: readonly PromptSlot[];
}

const SECTIONS: readonly Section[] = [
  { title: undefined, slots: ["intro"] },
  { title: "Execution", slots: ["execution"] },
  { title: "Guidance", slots: ["project_instructions", "guidance"] },
  { title: "Environment", slots: ["runtime_context", "environment"] },
];

/**
 * The system prompt of a turn: the host's instructions, then what plugins contribute, gated, de-duplicated, ordered by
 * slot and priority. Sections nobody filled are left out.
 */
export function assemblePrompt(
  instructions: string,
  contributions: readonly PromptContribution[],
  callableTools: ReadonlySet<string>,
): string {
  if (contributions.length === 0) return instructions;
  const kept = prepare(contributions, callableTools);
  const sections = instructions === "" ? [] : [instructions];
  for (const { title, slots } of SECTIONS) {
    const body = slots.flatMap((slot) => kept.filter((item) => item.slot === slot).map(render));
    if (body.length === 0) continue;
    sections.push((title === undefined ? body : [`## ${title}`, ...body]).join("\n\n"));
  }
  return sections.join("\n\n");
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
    const key = JSON.stringify([item.slot, item.priority ?? 0, content, [...tools].sort()]);
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
