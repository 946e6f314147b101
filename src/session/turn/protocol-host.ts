import { hostFacade, RUNTIME_SESSION_HOST, type RuntimeSessionHost } from "../../plugin/index.js";
import { AskingCall } from "../plugins/index.js";
import type { Turn } from "./turn.js";

/** The host services of the protocol: it is part of the turn and may do what the runtime may. */
export function protocolHost(
  { session, state, request: { signal } }: Turn,
  { site, pluginId }: { readonly site: "before_llm_call" | "code"; readonly pluginId: string },
): RuntimeSessionHost {
  const asking = new AskingCall(`${site}:${pluginId}:${state.step}`);
  const request = { sessionId: session.id, pluginId, granted: RUNTIME_SESSION_HOST, signal, asking };
  const host = hostFacade(RUNTIME_SESSION_HOST, (method, args) => session.services.host({ ...request, method, args }));
  // The facade has the methods of every interface it was given.
  return host as RuntimeSessionHost;
}
