import { screenOutput } from "./held-by-ai.js";
import { WIRES, type Wire } from "./wires.js";

/** Gemini sends arguments as an object, which cannot be half of one. */
const STREAMED_ARGUMENTS = WIRES.filter((wire) => wire !== "gemini");

/** Where a request of ours is not what `ai` sends, and why. Whatever is not in this list must be equal. */
export interface Difference {
  readonly conversation: string;
  /** Default: every wire of the conversation. */
  readonly wires?: readonly Wire[];
  readonly ours: string;
  readonly theirs: string;
  readonly why: string;
}

/** Conversations whose requests cannot be compared part by part; `golden/` has what we send. */
export const UNLIKE: Readonly<Record<string, string>> = {
  "cancelled-tools":
    "`ai` forgets the step that was aborted, with the tools that had ended. Here they stay, and a tool that was stopped has a result that says so",
};

const IN_WORDS =
  "Only Anthropic has a field that says that a call failed: elsewhere the text must say it, and its code is one the model and a plugin can tell apart. What an exception says may be secret: a tool that wants its words read throws toolError";
const OWN_CHECK = "Troupe checks arguments by the tool's schema itself, and says all that is wrong with them";

export const DIFFERENCES: readonly Difference[] = [
  {
    conversation: "failures",
    ours: "[Tool execution failed]\ntool_failed: broken failed",
    theirs: "The line is dead",
    why: IN_WORDS,
  },
  {
    conversation: "failures",
    ours: `[Tool execution failed]\ninvalid_tool_args: The arguments do not fit the tool's schema: must have required property 'city'; must NOT have additional properties: "town".`,
    theirs: `Invalid input for tool weather: Type validation failed: Value: {"town":"Oslo"}.\nError message: city is missing`,
    why: OWN_CHECK,
  },
  {
    conversation: "failures",
    wires: STREAMED_ARGUMENTS,
    ours: "[Tool execution failed]\ninvalid_tool_args: The arguments of weather are not valid JSON: Unexpected end of JSON input. Call it again with a JSON object.",
    theirs: `Invalid input for tool weather: JSON parsing failed: Text: {"city":.\nError message: Unexpected end of JSON input`,
    why: OWN_CHECK,
  },
  {
    conversation: "failures",
    ours: "[Tool execution failed]\ntool_unavailable: There is no tool called nowhere.",
    theirs:
      "Model tried to call unavailable tool 'nowhere'. Available tools: broken, clock, patient, screenshot, weather.",
    why: "The tools stand in the same request: the model need not be told them twice",
  },
  {
    conversation: "images",
    wires: ["openai-chat", "openai-compatible"],
    ours: "The screen, and its description:\n[image/png, 70 bytes]\n[application/pdf screen.pdf, 15 bytes]",
    theirs: JSON.stringify(screenOutput().value),
    why: "This API takes no files from a tool: `ai` has the model read their base64, which it cannot see and which costs a token for every few bytes",
  },
  {
    conversation: "repeated-ids",
    ours: "0_2",
    theirs: "0",
    why: "Two calls of a turn with one id would have one place in the journal, and providers refuse two results for one id",
  },
];

/** `theirs` with our value where a difference is allowed. Every allowed difference that was met is put into `met`. */
export function allowing(
  { ours, theirs }: { readonly ours: unknown; readonly theirs: unknown },
  allowed: readonly Difference[],
  met: Set<Difference>,
): unknown {
  if (Array.isArray(ours) && Array.isArray(theirs))
    return theirs.map((value, index) => allowing({ ours: ours[index], theirs: value }, allowed, met));
  if (isObject(ours) && isObject(theirs)) {
    const entries = Object.entries(theirs);
    return Object.fromEntries(
      entries.map(([name, value]) => [name, allowing({ ours: ours[name], theirs: value }, allowed, met)]),
    );
  }
  const difference = allowed.find((each) => each.ours === ours && each.theirs === theirs);
  if (difference === undefined) return theirs;
  met.add(difference);
  return ours;
}

function isObject(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}
