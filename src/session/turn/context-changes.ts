import type { PreparedContext, PromptContribution } from "../../kernel/index.js";

/** Who changed what the model is given, for whoever looks for what broke a provider's cache. */
export interface ContextChanges {
  /** The plugins that chose other messages of the history. */
  readonly messages: string[];
  /** The plugins that laid other tools over the session's. */
  readonly tools: string[];
  /** What each plugin contributed to the prompt; `transform`: by its context transform. */
  said: { readonly pluginId: string; readonly said: readonly PromptContribution[]; readonly transform?: true }[];
}

export function noteChanges(
  changes: ContextChanges,
  pluginId: string,
  { before, after }: { readonly before: PreparedContext; readonly after: PreparedContext },
): void {
  const differ = (a: unknown, b: unknown) => a !== b && JSON.stringify(a) !== JSON.stringify(b);
  if (differ(before.messages, after.messages)) changes.messages.push(pluginId);
  if (before.includeBaseTools !== after.includeBaseTools || differ(before.tools, after.tools))
    changes.tools.push(pluginId);
  const said = after.promptContributions.filter((each) => !before.promptContributions.includes(each));
  if (said.length > 0) changes.said.push({ pluginId, said, transform: true });
}
