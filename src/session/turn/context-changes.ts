import {
  type ModelCallRecord,
  type ModelRequest,
  type PreparedContext,
  type PromptContribution,
  windowPlace,
} from "../../kernel/index.js";
import type { WatchedCall } from "../protocol/index.js";
import type { Turn } from "./turn.js";

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

/** A model call for whoever looks for what broke the provider's cache. Only in development. */
export function watchedCall(
  turn: Turn,
  { turnId, system, tools, history, options }: ModelRequest,
  { route }: Pick<ModelCallRecord, "route">,
): WatchedCall {
  const { session, notes, catalog, changes, inherited, layers, state } = turn;
  const { past, protocol, settings } = session;
  const { instructions, window } = settings.config;
  const { prompt: turnLayer } = turn.request.extras;
  const { executionPrompt, promptContributions } = catalog.preamble;
  const cut = window === null ? 0 : windowPlace(past.known ?? 0, window);
  return {
    turnId,
    system,
    tools,
    history,
    historyLength: history.length,
    turn: notes.within(state.messages),
    stable: notes.stable,
    route,
    // What a fork's first turn reads of its parent's is not there in the next.
    beginning: `${past.frame}:${cut}:${inherited.length}:${session.agent.name ?? ""}`,
    catalog,
    activeTools: options?.activeTools,
    transformedBy: changes?.messages ?? [],
    overlaidBy: changes?.tools ?? [],
    sources: {
      instructions,
      layers: turnLayer === undefined ? layers : layers.slice(0, -1),
      turnLayer,
      protocol: { pluginId: protocol.ownerOf("driver"), execution: executionPrompt, said: promptContributions },
      plugins: changes?.said ?? [],
    },
  };
}
