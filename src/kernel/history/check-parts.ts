import { isRecord, type Json, sameJson } from "../json.js";
import type { Part } from "./parts.js";

/**
 * Why these are no parts of an answer, given the answer `before` somebody changed it; undefined when they are. Files and
 * what only a provider understands can be left out, but neither made up nor changed.
 */
export function problemWithAnswer(parts: unknown, before: readonly Part[]): string | undefined {
  if (!Array.isArray(parts)) return "its parts must be a list";
  for (const [at, part] of parts.entries()) {
    const { type } = isRecord(part) ? part : { type: undefined };
    const check = typeof type === "string" && Object.hasOwn(CHECKS, type) ? CHECKS[type as AnswerType] : undefined;
    if (check === undefined)
      return `part ${at} has no type that an answer can have (${Object.keys(CHECKS).join(", ")})`;
    if (!check(part) || !isMetadata(part.metadata)) return `part ${at} is no whole ${type}`;
    if (KEPT.includes(type as string) && !before.some((each) => sameJson(each as Json, part)))
      return `part ${at} is a ${type} that the answer did not have: it can be kept or left out`;
  }
  return undefined;
}

type AnswerType = Exclude<Part["type"], "tool_result">;
type Given = Readonly<Record<string, unknown>>;

const isText = ({ text }: Given) => typeof text === "string";
const isCall = ({ callId, toolName, args }: Given) =>
  typeof callId === "string" && typeof toolName === "string" && args !== undefined;

const CHECKS: { readonly [T in AnswerType]: (part: Given) => boolean } = {
  text: isText,
  reasoning: isText,
  tool_call: (part) => isCall(part) && (part.providerCallId === undefined || typeof part.providerCallId === "string"),
  provider_tool_call: isCall,
  provider_tool_result: ({ callId, toolName, value }) =>
    typeof callId === "string" && typeof toolName === "string" && value !== undefined,
  source: ({ id, source }) => typeof id === "string" && isRecord(source) && isOrigin(source),
  attachment: ({ source }) => isRecord(source),
  provider: ({ data }) => isRecord(data),
};

const KEPT: readonly string[] = ["attachment", "provider"];

function isOrigin({ kind, url, title, mediaType }: Given): boolean {
  if (kind === "url") return typeof url === "string";
  return kind === "document" && typeof title === "string" && typeof mediaType === "string";
}

function isMetadata(metadata: unknown): boolean {
  return metadata === undefined || (isRecord(metadata) && Object.values(metadata).every(isRecord));
}
