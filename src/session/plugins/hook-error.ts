import { asTroupeError, framesOf, TroupeError } from "../../kernel/index.js";
import { type HookKind, hookNameOf } from "../../plugin/index.js";
import { deniedAccess } from "../../wire/index.js";

/**
 * What a hook threw, in its plugin's name: `details` say whose it is, and the stack is the one of the plugin's own code.
 * A permission that Node refused is said with the path and the grant that would allow it.
 */
export function hookError(thrown: unknown, pluginId: string, kind: HookKind): TroupeError {
  const denied = deniedAccess(thrown, `Plugin ${pluginId}`);
  const { code, message, retryable, details } = denied ?? asTroupeError(thrown, "hook_failed");
  // The cause of an error that was wrapped already is the one whose words and stack help.
  const cause = thrown instanceof TroupeError ? thrown.cause : thrown;
  const owned = new TroupeError(code, message, {
    retryable,
    details: { ...details, pluginId, hook: hookNameOf(kind) },
    cause,
  });
  if (thrown instanceof Error && typeof thrown.stack === "string") owned.stack = framesOf(thrown, owned);
  return owned;
}

/** Did the hook miss its deadline? */
export function isTimeout(error: unknown): boolean {
  return error instanceof TroupeError && error.code === "hook_timeout";
}

export function finalizeFailed(error: unknown): TroupeError {
  const cause = asTroupeError(error, "hook_failed");
  const message = `A turnFinalized hook failed: ${cause.message}`;
  return new TroupeError("plugin_finalize_turn", message, { cause, retryable: cause.retryable });
}
