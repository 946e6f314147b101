import {
  type AppendRequest,
  asTroupeError,
  checkNodes,
  type Message,
  type SessionCreateRequest,
  type ToolAvailability,
  type ToolState,
  TroupeError,
  textOf,
} from "../kernel/index.js";
import { completeOnce } from "../model/index.js";
import {
  type DirectRequest,
  HOST_METHODS,
  type HostInterface,
  type HostMethod,
  type LlmRequest,
  TURN_EVENTS,
  type TurnRequestInput,
} from "../plugin/index.js";
import { createSessionFrom, trace } from "./perform.js";
import type { Session } from "./session.js";
import { visibleSession } from "./visibility.js";

/** A host service asked for, in the name of a plugin's call. */
export interface HostCallRequest {
  readonly pluginId: string;
  readonly granted: readonly HostInterface[];
  readonly method: HostMethod;
  readonly args: readonly unknown[];
  readonly signal: AbortSignal | undefined;
}

/**
 * Answers a host service. Checked here, never in the plugin: what the call's hook was granted, and that it is about a
 * session it may see. About the own session the answer comes from here, also in the middle of its turn; about others
 * it is fetched from where they are.
 */
export async function callHost(session: Session, request: HostCallRequest): Promise<unknown> {
  const { method, granted, args } = request;
  const owner =
    method === TURN_EVENTS ? "turn" : Object.hasOwn(HOST_METHODS, method) ? HOST_METHODS[method] : undefined;
  if (owner === undefined || !granted.includes(owner)) {
    throw new TroupeError("host_not_granted", `${String(method)} is not granted to this call of ${request.pluginId}.`, {
      details: { method, pluginId: request.pluginId },
    });
  }
  return SERVICES[owner](session, request, args);
}

/** Serves another session's call about this one: what {@link callHost} relays here. */
export function serveHostCall(
  session: Session,
  { pluginId, method, args }: Pick<HostCallRequest, "pluginId" | "method" | "args">,
): Promise<unknown> {
  return ownCall(session, { pluginId, method, args: [session.id, ...args.slice(1)], granted: [], signal: undefined });
}

type Service = (session: Session, request: HostCallRequest, args: readonly unknown[]) => Promise<unknown>;

const SERVICES: { readonly [I in HostInterface]: Service } = {
  sessionSnapshot: async (session, request, args) => {
    if (request.method === "snapshotCurrent") return session.view();
    return aboutSession(session, request, args);
  },
  toolCatalog: async (session, request, args) => aboutSession(session, request, args),
  toolState: async (session, request, args) => aboutSession(session, request, args),
  sessionGraph: async (session, request, args) => aboutSession(session, request, args),
  sessionLifecycle: lifecycle,
  turn: turns,
  task: async (_session, { method }) => tasks(method),
  monitor: async (_session, { method }) => {
    throw unavailable(method, "monitors");
  },
  directCompletion: async (session, request, args) => complete(session, request, args),
  trace: async (session, { pluginId }, [context, event]) => {
    const { name, payload } = (event ?? {}) as { name?: unknown; payload?: never };
    if (typeof name !== "string" || name === "") throw invalid("emitTraceEvent", "an event needs a name");
    trace(session, pluginId, { name, payload: payload ?? null, context: (context ?? {}) as never });
  },
};

async function aboutSession(session: Session, request: HostCallRequest, args: readonly unknown[]): Promise<unknown> {
  const sessionId = (await visibleSession(session, args[0])) as string;
  if (sessionId === session.id) return ownCall(session, request);
  const { pluginId, method } = request;
  return session.services.relay.ask({ sessionId, pluginId, method, args });
}

/** The services about one session, where that session is. */
async function ownCall(session: Session, { pluginId, method, args }: HostCallRequest): Promise<unknown> {
  const { tools } = session;
  switch (method) {
    case "snapshotSession":
      return session.view();
    case "readMessages": {
      const { from, to } = (args[1] ?? {}) as { from?: number; to?: number };
      return session.messages(from, to);
    }
    case "toolCatalog":
      return tools.catalog();
    case "toolState":
      return tools.exportState();
    case "applyToolState":
      return toolsChanged(session, () => tools.applyState(args[1] as ToolState));
    case "setToolsAvailability":
      return toolsChanged(session, () =>
        tools.setAvailability(names(method, args[1]), (args[2] ?? null) as ToolAvailability | null),
      );
    case "setToolAvailability":
      return toolsChanged(session, () =>
        tools.setAvailability(names(method, [args[1]]), (args[2] ?? null) as ToolAvailability | null),
      );
    case "setToolMembership":
      return toolsChanged(session, () => tools.setMembership(names(method, args[1]), args[2] === true));
    case "takeFirstTurnInput":
      return session.takeFirstInput();
    case "appendSessionNodes": {
      const request = (args[1] ?? {}) as AppendRequest;
      checkNodes(request.nodes);
      return session.append(request, { kind: "plugin", pluginId });
    }
    default:
      throw new TroupeError("unknown_method", `A session does not serve ${method}.`);
  }
}

/** Between turns a change is stored before it is answered; in a turn it is stored with the turn. */
async function toolsChanged(session: Session, change: () => number): Promise<number> {
  const generation = change();
  session.toolsChanged();
  if (session.running === undefined) await session.store("tools");
  return generation;
}

async function lifecycle(session: Session, request: HostCallRequest, args: readonly unknown[]): Promise<unknown> {
  switch (request.method) {
    case "createSession":
      return createSessionFrom(session, (args[0] ?? {}) as SessionCreateRequest);
    case "closeSession": {
      if (args[0] === session.id) {
        throw new TroupeError("session_busy", `Session ${session.id} cannot close itself in the middle of a call.`);
      }
      const sessionId = await visibleSession(session, args[0], { missing: "pass" });
      return sessionId === undefined ? undefined : session.services.relay.close({ sessionId });
    }
    default:
      return aboutSession(session, request, args);
  }
}

/** Turns of other sessions. One's own is the one that is asking. */
async function turns(session: Session, { method }: HostCallRequest, args: readonly unknown[]): Promise<unknown> {
  const { relay } = session.services;
  switch (method) {
    case "startTurn":
    case "startTurnStream": {
      const sessionId = (await visibleSession(session, args[0])) as string;
      const { text, turnId } = turnInput(args[1]);
      if (sessionId === session.id) {
        throw new TroupeError("turn_running", `Session ${sessionId} cannot start a turn within its own call.`, {
          details: { sessionId },
        });
      }
      const started = await relay.startTurn({ from: session.id, sessionId, text, turnId });
      session.turnsStarted.add(started.turnId);
      return method === "startTurn" ? relay.awaitTurn({ turnId: started.turnId }) : started;
    }
    case "awaitTurn":
      return relay.awaitTurn({ turnId: ownTurn(session, args[0]) });
    case "cancelTurn":
      return relay.cancelTurn({ turnId: ownTurn(session, args[0]) });
    default:
      return relay.turnEvents({ turnId: ownTurn(session, args[0]) });
  }
}

function ownTurn(session: Session, turnId: unknown): string {
  if (typeof turnId === "string" && session.turnsStarted.has(turnId)) return turnId;
  throw new TroupeError("turn_unknown", `Session ${session.id} has started no turn ${String(turnId)}.`);
}

function turnInput(input: unknown): TurnRequestInput {
  if (typeof input === "string") return { text: input };
  const { text, turnId } = (input ?? {}) as Partial<Record<keyof TurnRequestInput, unknown>>;
  if (typeof text !== "string") throw invalid("startTurn", "a turn needs a text");
  if (turnId !== undefined && (typeof turnId !== "string" || turnId.trim() === ""))
    throw invalid("startTurn", "a turn id must not be blank");
  return { text, ...(turnId !== undefined && { turnId }) };
}

/** As the seed's own host does while it has no tasks: what would start something refuses, the rest does nothing. */
function tasks(method: HostMethod): unknown {
  switch (method) {
    case "awaitHiddenTasks":
    case "unregisterBackgroundTask":
    case "completeBackgroundTask":
    case "transitionBackgroundTaskLiveState":
    case "validateAsyncHandlesVisible":
    case "transferAsyncHandles":
      return undefined;
    case "cancelUnreferencedAsyncHandles":
      return [];
    default:
      throw unavailable(method, "background tasks");
  }
}

async function complete(session: Session, request: HostCallRequest, args: readonly unknown[]): Promise<unknown> {
  const [asked, source] = args;
  if (typeof source !== "string" || source.trim() === "")
    throw invalid(request.method, "say under which source its usage is to be counted");
  const { system = "", messages, output } = (asked ?? {}) as Partial<DirectRequest> & Partial<LlmRequest>;
  if (!Array.isArray(messages) || messages.length === 0) throw invalid(request.method, "it needs messages");
  const response = await completeOnce(
    session.services.model,
    {
      sessionId: session.id,
      turnId: session.running?.turnId ?? "",
      system: typeof system === "string" ? system : "",
      turn: request.method === "directCompletion" ? plainMessages(request.method, messages) : messages,
      direct: { source, ...(output !== undefined && { output }) },
    },
    { signal: request.signal ?? NEVER },
  ).catch((error: unknown) => {
    const cause = asTroupeError(error, "model_failed");
    throw new TroupeError("direct_completion_failed", `The model did not answer: ${cause.message}`, {
      cause,
      retryable: cause.retryable,
    });
  });
  const { usage } = response;
  await session.recordUsage(source, usage);
  if (request.method === "directLlmCompletion") return { response, usage };
  return { text: textOf({ id: "", role: "assistant", parts: response.parts }), usage };
}

/** Texts as messages; what says nothing is left out. */
function plainMessages(method: HostMethod, messages: readonly unknown[]): Message[] {
  return messages.flatMap((message, index): Message[] => {
    const { role, text } = (message ?? {}) as Record<string, unknown>;
    if (typeof text !== "string" || (role !== "user" && role !== "assistant" && role !== "system")) {
      throw invalid(method, "a message needs a role (user, assistant, system) and a text");
    }
    return text === "" ? [] : [{ id: `direct.${index}`, role, parts: [{ type: "text", text }] }];
  });
}

const NEVER = new AbortController().signal;

function names(method: HostMethod, value: unknown): readonly string[] {
  if (Array.isArray(value) && value.every((name) => typeof name === "string")) return value;
  throw invalid(method, "it needs a list of tool names");
}

function invalid(method: string, why: string): TroupeError {
  return new TroupeError("invalid_host_call", `${method} was not called as it must be: ${why}.`);
}

function unavailable(method: HostMethod, what: string): TroupeError {
  return new TroupeError("host_service_unavailable", `${method}: ${what} are unavailable in this session.`, {
    details: { method },
  });
}
