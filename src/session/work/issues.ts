import { asTroupeError, TroupeError, type TurnIssue } from "../../kernel/index.js";
import { settleSession } from "../state/index.js";
import type { TurnSession } from "./turn-session.js";

/** What went wrong without being the end of it. */
export function issueOf(kind: TurnIssue["kind"], code: string, error: unknown): TurnIssue {
  const { message, details } = asTroupeError(error, code);
  const { pluginId } = details;
  return { kind, code, message, ...(typeof pluginId === "string" && { pluginId }) };
}

/** What was done is stored; that what its hooks changed afterwards is not is an issue of it. */
export async function settleOrIssue(session: TurnSession): Promise<TurnIssue[]> {
  try {
    await settleSession(session);
    return [];
  } catch (error) {
    return [issueOf("plugin", session.life.isStale ? "plugin_state_not_stored" : "plugin_capture_failed", error)];
  }
}

/** When it fails, the call fails and nothing is stored. */
export async function orRefused<T>(code: string, what: string, attempt: () => Promise<T>): Promise<T> {
  try {
    return await attempt();
  } catch (error) {
    const cause = asTroupeError(error, "hook_failed");
    throw new TroupeError(code, `${what}: ${cause.message}`, { cause, retryable: cause.retryable });
  }
}
