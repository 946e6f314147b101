import { type ModelCallRecord, type ModelRequest, windowPlace } from "../../kernel/index.js";
import type { WatchedCall } from "../protocol/index.js";
import type { Turn } from "./turn.js";

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
