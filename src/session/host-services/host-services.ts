import { ignore, onAbort } from "../../async/index.js";
import {
  checkAppend,
  definedOnly,
  type Message,
  type SessionCreateRequest,
  sessionBusy,
  type ToolAvailability,
  type ToolState,
  TroupeError,
  textOf,
  turnRunning,
  unknownMethod,
} from "../../kernel/index.js";
import {
  type DirectRequest,
  HOST_METHODS,
  type HostInterface,
  type HostMethod,
  type LlmRequest,
  type SessionHandle,
  SHARED,
  TURN_EVENTS,
  type TurnRequestInput,
  type TurnTaskInput,
  triggerSource,
} from "../../plugin/index.js";
import { decodeError, type ErrorData, encodeError } from "../../wire/index.js";
import { isSuspended } from "../journal/index.js";
import { unfitAnswer } from "../plugin-thread/index.js";
import type { AskedService, AskingCall, HostRequest } from "../plugins/index.js";
import { addInput, type Session, takeFirstInput, viewOf } from "../state/index.js";
import { completeBeside, notCompleted } from "./direct-completion.js";
import { createSessionFrom, invalidHostCall, trace, visibleSession } from "./immediate-directives.js";
import { askOutside } from "./outside.js";
import { serveShared } from "./shared-state.js";
import { changesBeside, withSession } from "./tasks.js";

/** A host service asked for by a plugin of a session. */
type OwnRequest = Omit<HostRequest, "sessionId">;

/**
 * Answers a host service. Checked here, never in the plugin: what the call's hook was granted, and that it is about a
 * session it may see. About the own session the answer comes from here, also in the middle of its turn; about others
 * it is fetched from where they are.
 */
export async function callHost(session: Session, request: OwnRequest): Promise<unknown> {
  const { method, granted, asking } = request;
  if (method === SHARED) return serveShared(session, request);
  const owner =
    method === TURN_EVENTS ? "turn" : Object.hasOwn(HOST_METHODS, method) ? HOST_METHODS[method] : undefined;
  if (owner === undefined || !granted.includes(owner)) {
    throw new TroupeError("host_not_granted", `${String(method)} is not granted to this call of ${request.pluginId}.`, {
      details: { method, pluginId: request.pluginId },
    });
  }
  const serve = async (nth?: number) => {
    if (Object.hasOwn(ABOUT_SESSION, method)) return aboutSession(session, request);
    if (owner === "task" || owner === "monitor") return askOutside(session, await withSession(session, request), nth);
    if (method === "emitTrigger") await checkVisible(session, request.args[2]);
    const service = HERE[method];
    if (service === undefined && OUTSIDE.includes(owner)) return askOutside(session, request, nth);
    if (service === undefined) throw unavailable(method, "background tasks");
    return service(session, request, nth);
  };
  const changes = (CHANGING.includes(owner) || changesBeside(method)) && method !== "toolState";
  return asking === undefined || !changes ? serve() : serveOnce(session, asking, request, serve);
}

/** The interfaces whose services change something, or take it. */
const CHANGING: readonly HostInterface[] = [
  "toolState",
  "sessionLifecycle",
  "turn",
  "sessionGraph",
  "directCompletion",
  "processActs",
  "triggerActs",
];

/** Served by the main thread, for whatever thread is concerned there. */
const OUTSIDE: readonly HostInterface[] = ["processReads", "processActs", "triggerReads", "triggerActs"];

/** An event for certain sessions is for those that the caller may see. */
async function checkVisible(session: Session, options: unknown): Promise<void> {
  const { sessions } = (options ?? {}) as { readonly sessions?: unknown };
  if (Array.isArray(sessions)) for (const id of sessions) await visibleSession(session, id);
}

/** What came of a service, as the journal has it. */
interface HostAnswer {
  readonly value?: unknown;
  readonly error?: ErrorData;
}

/**
 * Serves a call that may be made again: a service that changes something, or takes something that is given once, is done
 * once and answered again as it was. With a journal the answer of a turn's call is durable before the plugin has it, so it
 * also outlives the worker.
 */
function serveOnce(
  session: Session,
  asking: AskingCall,
  asked: AskedService,
  serve: (nth: number) => Promise<unknown>,
): Promise<unknown> {
  return asking.ask(asked, async (nth) => {
    const turn = session.life.unstoredTurn;
    const { method, args, signal } = asked;
    // A process ends with its host. While that lives, whoever has the processes knows what was asked of them.
    const isKept = HOST_METHODS[method] !== "processActs";
    if (asking.place === undefined || turn === undefined || !isKept) return serve(nth);
    let thrown: unknown;
    const { value, error } = await turn.journal.once<HostAnswer>({
      key: `host:${asking.name((place) => turn.journal.number(place))}:${nth}`,
      envelope: () => ({ method, args: args as never }),
      run: async () => {
        try {
          const served = await serve(nth);
          return served === undefined ? {} : { value: served };
        } catch (failure) {
          // Of a service that was given up nobody knows what it did. Any other failure is an answer: the call went on from it.
          if (signal?.aborted) throw failure;
          thrown = failure;
          return { error: encodeError(failure) };
        }
      },
      found: async (answer) => {
        await redo(session, asked, answer, () => serve(nth));
        return answer;
      },
    });
    if (error !== undefined) throw thrown ?? decodeError(error);
    return value;
  });
}

/** What a service changes in the session itself is stored with the turn, so a crash takes it back: it is done again. */
async function redo(
  session: Session,
  { method, args }: AskedService,
  { value }: HostAnswer,
  serve: () => Promise<unknown>,
): Promise<void> {
  if (method === "createSession" && value !== undefined) session.created.add((value as SessionHandle).sessionId);
  else if (args[0] !== session.id) return;
  else if (method === "takeFirstTurnInput") await serve();
  // The generation says whether the change was stored meanwhile, with something else.
  else if (HOST_METHODS[method] === "toolState" && session.tools.generation < Number(value)) await serve();
}

type Service = (session: Session, request: OwnRequest, nth?: number) => unknown;

/** The services about one session, which their first argument names, as they are done where that session is. */
const ABOUT_SESSION: { readonly [M in HostMethod]?: Service } = {
  snapshotSession: (session) => viewOf(session),
  readMessages: (session, { args }) => {
    const { from, to } = (args[1] ?? {}) as { from?: number; to?: number };
    return session.graph.messages(from, to);
  },
  toolCatalog: ({ tools }) => tools.catalog(),
  toolState: ({ tools }) => tools.exportState(),
  applyToolState: (session, { args }) => toolsChanged(session, () => session.tools.applyState(args[1] as ToolState)),
  setToolsAvailability: (session, { method, args }) => setAvailability(session, names(method, args[1]), args[2]),
  setToolAvailability: (session, { method, args }) => setAvailability(session, names(method, [args[1]]), args[2]),
  setToolMembership: (session, { method, args }) => {
    const [, tools, present] = args;
    if (typeof present !== "boolean") throw invalidHostCall(method, "say whether the tools are to be present");
    return toolsChanged(session, () => session.tools.setMembership(names(method, tools), present));
  },
  takeFirstTurnInput: (session) => takeFirstInput(session),
  injectTurnInput: async (session, { method, args }) => {
    const { id, text } = (args[1] ?? {}) as { id?: unknown; text?: unknown };
    if (typeof text !== "string") throw invalidHostCall(method, "an input needs a text");
    if (id !== undefined && typeof id !== "string") throw invalidHostCall(method, "an input's id is a string");
    await addInput(session, { text, items: undefined, key: id, boundary: "after_work" });
  },
  appendSessionNodes: (session, { args, pluginId }) =>
    session.graph.append(checkAppend(args[1]), { kind: "plugin", pluginId }),
};

async function aboutSession(session: Session, request: OwnRequest): Promise<unknown> {
  const { pluginId, method, args } = request;
  const sessionId = (await visibleSession(session, args[0])) as string;
  if (sessionId === session.id) return ABOUT_SESSION[method]?.(session, request);
  return session.services.relay("ask", { sessionId, pluginId, method, args });
}

/** Serves another session's call about this one: what {@link callHost} relays here. */
export async function serveHostCall(
  session: Session,
  { pluginId, method, args }: Pick<HostRequest, "pluginId" | "method" | "args">,
): Promise<unknown> {
  const service = Object.hasOwn(ABOUT_SESSION, method) ? ABOUT_SESSION[method] : undefined;
  if (service === undefined) throw unknownMethod("A session", method);
  return service(session, { pluginId, method, args: [session.id, ...args.slice(1)], granted: [], signal: undefined });
}

function setAvailability(session: Session, tools: readonly string[], availability: unknown): Promise<number> {
  return toolsChanged(session, () =>
    session.tools.setAvailability(tools, (availability ?? null) as ToolAvailability | null),
  );
}

/** Between turns a change is stored before it is answered; in a turn it is stored with the turn. */
async function toolsChanged(session: Session, change: () => number): Promise<number> {
  const generation = change();
  if (session.life.unstoredTurn === undefined) await session.stored.store("tools");
  return generation;
}

/** The services that are done here, whichever session they are about. */
const HERE: { readonly [M in HostMethod | "turnEvents"]?: Service } = {
  snapshotCurrent: (session) => viewOf(session),
  listTriggers: ({ services }) =>
    services.surfaces.common.triggers.all
      .map((trigger) => ({ source: triggerSource(trigger), ...trigger }))
      .sort((a, b) => (a.source < b.source ? -1 : 1)),
  createSession: (session, { args, pluginId }) =>
    createSessionFrom(session, (args[0] ?? {}) as SessionCreateRequest, pluginId),
  closeSession: async (session, { args }) => {
    if (args[0] === session.id)
      throw sessionBusy(session.id, "cannot close itself in the middle of a call", { retryable: false });
    const sessionId = await visibleSession(session, args[0], { missing: "pass" });
    return sessionId === undefined ? undefined : session.services.relay("close", { sessionId });
  },
  startTurn: async (session, request) => {
    const { turnId } = await startTurn(session, request, { streams: false });
    return wholeTurn(session, turnId, request.signal);
  },
  startTurnTask: async (session, request, nth) => {
    const { sessionId, input } = await toStart(session, request.args, turnTaskInput);
    return askOutside(session, { ...request, args: [sessionId, input] }, nth);
  },
  startTurnStream: (session, request) => startTurn(session, request, { streams: true }),
  awaitTurn: (session, request) => session.services.relay("awaitTurn", startedTurn(session, request)),
  cancelTurn: (session, request) => session.services.relay("cancelTurn", startedTurn(session, request)),
  turnEvents: (session, request) => session.services.relay("turnEvents", startedTurn(session, request)),
  directCompletion: complete,
  directLlmCompletion: complete,
  emitTraceEvent: (session, { method, pluginId, args: [context, event] }) => {
    const { name, payload } = (event ?? {}) as { name?: unknown; payload?: never };
    if (typeof name !== "string" || name === "") throw invalidHostCall(method, "an event needs a name");
    if (typeof (context ?? {}) !== "object") throw invalidHostCall(method, "a context is an object");
    // The host reads it, and may write it down as JSON.
    const problem = unfitAnswer({ payload, context });
    if (problem !== undefined) throw invalidHostCall(method, problem);
    trace(session, pluginId, { name, payload: payload ?? null, context: (context ?? {}) as never });
  },
};

/** Another session that is to have a turn, and with what. One's own is the one that is asking. */
async function toStart<I>(
  session: Session,
  [named, given]: readonly unknown[],
  read: (given: unknown) => I,
): Promise<{ readonly sessionId: string; readonly input: I }> {
  const sessionId = (await visibleSession(session, named)) as string;
  const input = read(given);
  if (sessionId === session.id)
    throw turnRunning(sessionId, "cannot start a turn within its own call", { retryable: false });
  // What the other session spends is this one's to pay.
  session.spending.check();
  return { sessionId, input };
}

async function startTurn(
  session: Session,
  { args }: OwnRequest,
  { streams }: { readonly streams: boolean },
): Promise<{ readonly turnId: string }> {
  const { sessionId, input } = await toStart(session, args, turnInput);
  const { text, turnId, key } = input;
  const limited = session.spending.budget !== null;
  return session.services.relay("startTurn", { from: session.id, sessionId, text, turnId, key, streams, limited });
}

/** Waits for a turn only this call knows of: when the call is given up, nobody else can stop it. */
async function wholeTurn(session: Session, turnId: string, signal: AbortSignal | undefined): Promise<unknown> {
  const { relay } = session.services;
  const turn = { from: session.id, turnId };
  const letGo = onAbort(signal, () => {
    // Suspended by the runtime's closing it goes on with this one.
    if (signal !== undefined && !isSuspended(signal)) relay("cancelTurn", turn).catch(ignore);
  });
  try {
    return await relay("awaitTurn", turn);
  } finally {
    letGo();
  }
}

function startedTurn({ id: from }: Session, { method, args: [turnId] }: OwnRequest): { from: string; turnId: string } {
  if (typeof turnId === "string") return { from, turnId };
  throw invalidHostCall(method, "say which turn");
}

const MAX_TURN_KEY = 256;

/** The words of the task are checked with the task. */
function turnTaskInput(input: unknown): TurnTaskInput {
  const { text, key, label, deliver, visibility } = (input ?? {}) as Partial<TurnTaskInput>;
  if (typeof text !== "string") throw invalidHostCall("startTurnTask", "a turn needs a text");
  return { text, ...definedOnly({ key, label, deliver, visibility }) };
}

function turnInput(input: unknown): TurnRequestInput {
  if (typeof input === "string") return { text: input };
  const { text, turnId, key } = (input ?? {}) as Partial<Record<keyof TurnRequestInput, unknown>>;
  if (typeof text !== "string") throw invalidHostCall("startTurn", "a turn needs a text");
  if (turnId !== undefined && (typeof turnId !== "string" || turnId.trim() === ""))
    throw invalidHostCall("startTurn", "a turn id must not be blank");
  if (key !== undefined && (typeof key !== "string" || key === "" || key.length > MAX_TURN_KEY))
    throw invalidHostCall("startTurn", `a turn's key is a text of 1 to ${MAX_TURN_KEY} characters`);
  return { text, ...(turnId !== undefined && { turnId }), ...(key !== undefined && { key }) };
}

async function complete(session: Session, request: OwnRequest): Promise<unknown> {
  const [asked, source] = request.args;
  const { signal = new AbortController().signal } = request;
  session.spending.check();
  if (typeof source !== "string" || source.trim() === "")
    throw invalidHostCall(request.method, "say under which source its usage is to be counted");
  const { system = "", messages, output } = (asked ?? {}) as Partial<DirectRequest> & Partial<LlmRequest>;
  const turn = request.method === "directCompletion" ? plainMessages(messages) : wholeMessages(messages);
  if (turn === undefined || turn.length === 0)
    throw invalidHostCall(request.method, "it needs messages that say something");
  const response = await completeBeside(
    session,
    {
      system: typeof system === "string" ? system : "",
      turn,
      direct: { source, ...(output !== undefined && { output }) },
    },
    signal,
  );
  const { usage, reason } = response;
  if (request.method === "directLlmCompletion") return { response, usage };
  // Of a whole response the caller sees it; half a text looks like any other.
  if (reason === "error") throw notCompleted("broke off with an error");
  return { text: textOf(response), usage };
}

/** Texts as messages; what says nothing is left out. */
function plainMessages(messages: unknown): readonly Message[] | undefined {
  if (!Array.isArray(messages)) return undefined;
  return messages.flatMap((message: unknown, index): Message[] => {
    const { role, text } = (message ?? {}) as Record<string, unknown>;
    if (typeof text !== "string" || (role !== "user" && role !== "assistant" && role !== "system")) {
      throw invalidHostCall("directCompletion", "a message needs a role (user, assistant, system) and a text");
    }
    return text === "" ? [] : [{ id: `direct.${index}`, role, parts: [{ type: "text", text }] }];
  });
}

function wholeMessages(messages: unknown): readonly Message[] | undefined {
  if (!Array.isArray(messages)) return undefined;
  for (const message of messages as readonly (Partial<Message> | null)[]) {
    if (typeof message?.role !== "string" || !Array.isArray(message.parts))
      throw invalidHostCall("directLlmCompletion", "a message needs a role and parts");
  }
  return messages;
}

function names(method: HostMethod, value: unknown): readonly string[] {
  if (Array.isArray(value) && value.every((name) => typeof name === "string")) return value;
  throw invalidHostCall(method, "it needs a list of tool names");
}

function unavailable(method: HostMethod, what: string): TroupeError {
  return new TroupeError("host_service_unavailable", `${method}: ${what} are unavailable in this session.`, {
    details: { method },
  });
}
