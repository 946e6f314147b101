import {
  asTroupeError,
  authorityWidened,
  checkCreateRequest,
  checkNodes,
  checkSessionId,
  type Directive,
  type JsonObject,
  messageOf,
  type Owned,
  type SessionCreateRequest,
  sessionExists,
  TroupeError,
  toolFailure,
} from "../../kernel/index.js";
import type { SessionHandle } from "../../plugin/index.js";
import type { TraceEvent } from "../calls/index.js";
import type { SessionServices, Spending } from "../state/index.js";

/** A session that makes others and may see them. */
export interface ParentSession {
  readonly id: string;
  /** Sessions this one's plugins made: it may see them, whatever their relation. */
  readonly created: Set<string>;
  readonly spending: Pick<Spending, "remaining">;
  readonly services: Pick<SessionServices, "store" | "relay" | "trace">;
}

/** Directives that are done when they are met, in order. The first session that cannot be made ends it. */
export async function performDirectives(
  session: ParentSession,
  directives: readonly Owned<Directive>[],
): Promise<void> {
  for (const { pluginId, value } of directives) {
    if (value.kind === "emit_trace") trace(session, pluginId, value);
    else if (value.kind === "create_session")
      await createSessionFrom(session, value.request, pluginId).catch((error: unknown) => {
        const message = `Plugin ${pluginId} could not create a session: ${messageOf(error)}`;
        throw new TroupeError("plugin_session_create_failed", message, { cause: error, details: { pluginId } });
      });
  }
}

/**
 * The same around a tool call: a session that cannot be made denies the call, and whatever else the hooks said still
 * counts. Nothing to do is the usual case and costs no promise.
 */
export function performAtTool<D extends Directive>(
  session: ParentSession,
  directives: readonly Owned<D>[],
): readonly Owned<D>[] | Promise<readonly Owned<D>[]> {
  if (!directives.some(({ value }) => value.kind === "create_session" || value.kind === "emit_trace"))
    return directives;
  return performEach(session, directives);
}

async function performEach<D extends Directive>(
  session: ParentSession,
  directives: readonly Owned<D>[],
): Promise<readonly Owned<D>[]> {
  const performed: Owned<D>[] = [];
  for (const owned of directives) {
    try {
      await performDirectives(session, [owned]);
      performed.push(owned);
    } catch (error) {
      const { code, message } = asTroupeError(error, "plugin_session_create_failed");
      const value = { kind: "short_circuit_tool", output: toolFailure("internal", code, message) };
      // Every tool site knows denials.
      performed.push({ pluginId: owned.pluginId, value: value as unknown as D });
    }
  }
  return performed;
}

/** A trace in a plugin's name; the session's id is always the session's own. */
export function trace(
  session: ParentSession,
  pluginId: string,
  { name, payload = null, context = {} }: { name: string; payload?: TraceEvent["payload"]; context?: JsonObject },
): void {
  if (!session.services.trace.listening) return;
  session.services.trace.emit({
    name: `plugin.${pluginId}.${name}`,
    payload,
    context: { ...context, sessionId: session.id },
  });
}

/**
 * Makes a session for another one, in the name of a plugin, checked before anything leaves the worker. The new session
 * may spend what is left of this one's budget.
 */
export async function createSessionFrom(
  session: ParentSession,
  asked: SessionCreateRequest,
  pluginId: string,
): Promise<SessionHandle> {
  const request = checkCreateRequest(asked);
  checkOwnOptions(request, pluginId);
  const { sessionId, start, initialNodes } = request;
  if (sessionId !== undefined) checkSessionId(sessionId);
  if (sessionId === session.id) throw sessionExists(sessionId);
  if (start?.kind === "existing_session") await visibleSession(session, start.sessionId);
  if (initialNodes !== undefined) checkNodes(initialNodes);
  const budget = session.spending.remaining();
  const handle = await session.services.relay("create", { from: session.id, request, ...(budget && { budget }) });
  session.created.add(handle.sessionId);
  return handle;
}

/** Another plugin's options may be what it guards by: a plugin that could set them would switch the guard off in a child. */
function checkOwnOptions({ authority }: SessionCreateRequest, pluginId: string): void {
  const stranger = Object.keys(authority?.pluginOptions ?? {}).find((id) => id !== pluginId);
  if (stranger === undefined) return;
  const why = `Plugin ${pluginId} can give a child its own pluginOptions only, not those of ${stranger}`;
  throw authorityWidened(why, { pluginId, stranger });
}

export function invalidHostCall(method: string, why: string): TroupeError {
  return new TroupeError("invalid_host_call", `${method} was not called as it must be: ${why}.`);
}

/** A chain of forks longer than this is not followed. */
const MAX_DEPTH = 64;

/**
 * The id of a session another one may ask about: itself, its descendants, and what it made. Any other is refused
 * without a word on whether it exists. With `missing: "pass"` a session nobody knows gives undefined.
 */
export async function visibleSession(
  session: ParentSession,
  sessionId: unknown,
  options: { readonly missing?: "refuse" | "pass" } = {},
): Promise<string | undefined> {
  if (typeof sessionId !== "string") throw invalidHostCall("The call", "it must say which session it is about");
  if (sessionId === session.id || session.created.has(sessionId)) return sessionId;
  const { store } = session.services;
  const ancestors = await store.ancestors(sessionId, MAX_DEPTH);
  if (ancestors === undefined && options.missing === "pass") return undefined;
  if (ancestors?.includes(session.id) === true) return sessionId;
  throw new TroupeError("session_not_visible", `Session ${session.id} has no descendant ${sessionId}.`, {
    details: { sessionId },
  });
}
