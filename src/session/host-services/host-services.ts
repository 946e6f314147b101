import { ignore, onAbort } from "../../async/index.js";
import {
  aborted,
  asTroupeError,
  checkAppend,
  type Message,
  type SessionCreateRequest,
  type ToolAvailability,
  type ToolState,
  TroupeError,
  textOf,
} from "../../kernel/index.js";
import { completeOnce } from "../../model/index.js";
import {
  type DirectRequest,
  HOST_METHODS,
  type HostInterface,
  type HostMethod,
  type LlmRequest,
  TURN_EVENTS,
  type TurnRequestInput,
} from "../../plugin/index.js";
import type { HostRelay } from "../calls/index.js";
import type { AskingCall } from "../plugins/index.js";
import type { Session } from "../state/index.js";
import { addInput, takeFirstInput, viewOf } from "../state/index.js";
import { serveOnce } from "./host-answers.js";
import { createSessionFrom, trace } from "./immediate-directives.js";
import { visibleSession } from "./visibility.js";

/** A host service asked for, in the name of a plugin's call. */
export interface HostCallRequest {
  readonly pluginId: string;
  readonly granted: readonly HostInterface[];
  readonly method: HostMethod;
  readonly args: readonly unknown[];
  readonly signal: AbortSignal | undefined;
  /** The call it is asked in, when that may be made again. */
  readonly asking?: AskingCall | undefined;
}

/**
 * Answers a host service. Checked here, never in the plugin: what the call's hook was granted, and that it is about a
 * session it may see. About the own session the answer comes from here, also in the middle of its turn; about others
 * it is fetched from where they are.
 */
export async function callHost(session: Session, request: HostCallRequest): Promise<unknown> {
  const { method, granted, args, asking } = request;
  const owner =
    method === TURN_EVENTS ? "turn" : Object.hasOwn(HOST_METHODS, method) ? HOST_METHODS[method] : undefined;
  if (owner === undefined || !granted.includes(owner)) {
    throw new TroupeError("host_not_granted", `${String(method)} is not granted to this call of ${request.pluginId}.`, {
      details: { method, pluginId: request.pluginId },
    });
  }
  const serve = () => SERVICES[owner](session, request, args);
  const changes = method === "injectTurnInput" || (CHANGING.includes(owner) && method !== "toolState");
  return asking === undefined || !changes ? serve() : serveOnce(session, asking, request, serve);
}

/** The interfaces whose services change something: all of them, but for reading the tool state. */
const CHANGING: readonly HostInterface[] = [
  "toolState",
  "sessionLifecycle",
  "turn",
  "sessionGraph",
  "directCompletion",
];

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
    if (request.method === "snapshotCurrent") return viewOf(session);
    return aboutSession(session, request, args);
  },
  toolCatalog: async (session, request, args) => aboutSession(session, request, args),
  toolState: async (session, request, args) => aboutSession(session, request, args),
  sessionGraph: async (session, request, args) => aboutSession(session, request, args),
  sessionLifecycle: lifecycle,
  turn: turns,
  task: async (session, request, args) => {
    if (request.method === "injectTurnInput") return aboutSession(session, request, args);
    return tasks(request.method);
  },
  monitor: async (_session, { method }) => {
    throw unavailable(method, "monitors");
  },
  directCompletion: async (session, request, args) => complete(session, request, args),
  trace: async (session, { pluginId }, [context, event]) => {
    const { name, payload } = (event ?? {}) as { name?: unknown; payload?: never };
    if (typeof name !== "string" || name === "") throw invalid("emitTraceEvent", "an event needs a name");
    if (typeof (context ?? {}) !== "object") throw invalid("emitTraceEvent", "a context is an object");
    trace(session, pluginId, { name, payload: payload ?? null, context: (context ?? {}) as never });
  },
};

async function aboutSession(session: Session, request: HostCallRequest, args: readonly unknown[]): Promise<unknown> {
  const sessionId = (await visibleSession(session, args[0])) as string;
  if (sessionId === session.id) return ownCall(session, request);
  const { pluginId, method } = request;
  return session.services.relay("ask", { sessionId, pluginId, method, args });
}

/** The services about one session, where that session is. */
async function ownCall(session: Session, { pluginId, method, args }: HostCallRequest): Promise<unknown> {
  const { tools } = session;
  switch (method) {
    case "snapshotSession":
      return viewOf(session);
    case "readMessages": {
      const { from, to } = (args[1] ?? {}) as { from?: number; to?: number };
      return session.graph.messages(from, to);
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
      if (typeof args[2] !== "boolean") throw invalid(method, "say whether the tools are to be present");
      return toolsChanged(session, () => tools.setMembership(names(method, args[1]), args[2] as boolean));
    case "takeFirstTurnInput":
      return takeFirstInput(session);
    case "injectTurnInput": {
      const { id, text } = (args[1] ?? {}) as { id?: unknown; text?: unknown };
      if (typeof text !== "string") throw invalid(method, "an input needs a text");
      if (id !== undefined && typeof id !== "string") throw invalid(method, "an input's id is a string");
      await addInput(session, { text, items: undefined, key: id, boundary: "after_work" });
      return undefined;
    }
    case "appendSessionNodes": {
      return session.graph.append(checkAppend(args[1]), { kind: "plugin", pluginId });
    }
    default:
      throw new TroupeError("unknown_method", `A session does not serve ${method}.`);
  }
}

/** Between turns a change is stored before it is answered; in a turn it is stored with the turn. */
async function toolsChanged(session: Session, change: () => number): Promise<number> {
  const generation = change();
  await session.stored.store("tools", { leaveToTurn: true });
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
      return sessionId === undefined ? undefined : session.services.relay("close", { sessionId });
    }
    default:
      return aboutSession(session, request, args);
  }
}

/** Turns of other sessions. One's own is the one that is asking. */
async function turns(
  session: Session,
  { method, signal }: HostCallRequest,
  args: readonly unknown[],
): Promise<unknown> {
  const { relay } = session.services;
  const from = session.id;
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
      const streams = method === "startTurnStream";
      const started = await relay("startTurn", { from, sessionId, text, turnId, streams });
      return streams ? started : wholeTurn(relay, { from, turnId: started.turnId }, signal);
    }
    case "awaitTurn":
      return relay("awaitTurn", { from, turnId: turnIdFrom(method, args[0]) });
    case "cancelTurn":
      return relay("cancelTurn", { from, turnId: turnIdFrom(method, args[0]) });
    default:
      return relay("turnEvents", { from, turnId: turnIdFrom(method, args[0]) });
  }
}

/** Waits for a turn only this call knows of: when the call is given up, nobody else can stop it. */
async function wholeTurn(
  relay: HostRelay,
  turn: { readonly from: string; readonly turnId: string },
  signal: AbortSignal | undefined,
): Promise<unknown> {
  const letGo = onAbort(signal, () => void relay("cancelTurn", turn).catch(ignore));
  try {
    return await relay("awaitTurn", turn);
  } finally {
    letGo();
  }
}

function turnIdFrom(method: HostMethod, turnId: unknown): string {
  if (typeof turnId === "string") return turnId;
  throw invalid(method, "say which turn");
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
  const { signal = new AbortController().signal } = request;
  session.spending.check();
  if (typeof source !== "string" || source.trim() === "")
    throw invalid(request.method, "say under which source its usage is to be counted");
  const { system = "", messages, output } = (asked ?? {}) as Partial<DirectRequest> & Partial<LlmRequest>;
  const turn = request.method === "directCompletion" ? plainMessages(messages) : wholeMessages(messages);
  if (turn === undefined || turn.length === 0) throw invalid(request.method, "it needs messages that say something");
  const response = await completeOnce(
    session.settings.modelNamed(),
    {
      sessionId: session.id,
      turnId: session.life.turn?.turnId ?? "",
      system: typeof system === "string" ? system : "",
      turn,
      direct: { source, ...(output !== undefined && { output }) },
    },
    { signal, clock: session.services.clock },
  ).catch((error: unknown) => {
    if (signal.aborted) throw aborted(signal);
    const cause = asTroupeError(error, "model_failed");
    throw new TroupeError("direct_completion_failed", `The model did not answer: ${cause.message}`, {
      cause,
      retryable: cause.retryable,
    });
  });
  const { usage, reason } = response;
  await session.spending.record({ source, model: session.settings.modelNamed().id, usage });
  if (request.method === "directLlmCompletion") return { response, usage };
  // Of a whole response the caller sees it; half a text looks like any other.
  if (reason === "error") throw new TroupeError("direct_completion_failed", "The model broke off with an error.");
  return { text: textOf({ id: "", role: "assistant", parts: response.parts }), usage };
}

/** Texts as messages; what says nothing is left out. */
function plainMessages(messages: unknown): readonly Message[] | undefined {
  if (!Array.isArray(messages)) return undefined;
  return messages.flatMap((message: unknown, index): Message[] => {
    const { role, text } = (message ?? {}) as Record<string, unknown>;
    if (typeof text !== "string" || (role !== "user" && role !== "assistant" && role !== "system")) {
      throw invalid("directCompletion", "a message needs a role (user, assistant, system) and a text");
    }
    return text === "" ? [] : [{ id: `direct.${index}`, role, parts: [{ type: "text", text }] }];
  });
}

function wholeMessages(messages: unknown): readonly Message[] | undefined {
  if (!Array.isArray(messages)) return undefined;
  for (const message of messages as readonly (Partial<Message> | null)[]) {
    if (typeof message?.role !== "string" || !Array.isArray(message.parts))
      throw invalid("directLlmCompletion", "a message needs a role and parts");
  }
  return messages;
}

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
