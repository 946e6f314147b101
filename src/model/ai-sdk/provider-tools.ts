import type { LanguageModelV3ProviderTool } from "@ai-sdk/provider";
import { isRecord } from "../../kernel/index.js";
import type { ProviderTools } from "./ai-sdk-prompt.js";

/** What version 2 and later versions call a tool that a provider defines. */
const TYPES: readonly unknown[] = ["provider", "provider-defined"];

/** A model module's `providerTools`, as requests name them. Throws a TypeError that says what is wrong. */
export function checkProviderTools(tools: unknown): ProviderTools {
  if (!isRecord(tools)) throw new TypeError("providerTools must be an object of tools by name");
  return new Map(Object.entries(tools).map(([name, tool]) => [name, providerTool(name, tool)]));
}

function providerTool(name: string, tool: unknown): LanguageModelV3ProviderTool {
  const { type, id, args } = isRecord(tool) ? tool : {};
  if (!TYPES.includes(type) || typeof id !== "string" || !isRecord(args)) {
    throw new TypeError(
      `providerTools.${name} is no tool of a provider, such as anthropic.tools.webSearch_20250305() makes one; your own tools go into createTroupe({ tools })`,
    );
  }
  // Checked above; the id has a dot in every provider package, and each version has its own word for the type.
  return { type, name, id, args } as LanguageModelV3ProviderTool;
}
