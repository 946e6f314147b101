import { type MessagePort, threadId } from "node:worker_threads";
import { TroupeError } from "../kernel/index.js";
import { decode, moving, type Served, serve } from "../wire/index.js";
import { SessionHost, type WorkerParts } from "./host.js";
import { serveHostCall } from "./host-services.js";
import type { SessionSurface, SessionWorkerService } from "./protocol.js";
import type { Session } from "./session.js";
import { readAhead } from "./session-history.js";
import { cancelInput, completeTool } from "./session-intake.js";
import { viewOf } from "./session-view.js";

/** The session worker's side of everything the main thread asks of it. */
export function serveSessions(parentPort: MessagePort, parts: Omit<WorkerParts, "service">): void {
  let host: SessionHost | undefined;
  const configured = (): SessionHost => {
    if (host === undefined)
      throw new TroupeError("worker_not_configured", "This session worker is not configured yet.");
    return host;
  };
  const service = {
    async configure(setup) {
      host = await SessionHost.create(setup, { ...parts, service });
      return { threadId, inline: host.inlineManifests };
    },
    attachPlugin: (lane) => configured().workerLink(lane.plugin)?.attach(lane),
    failPlugin: ({ plugin, code, message }) => configured().workerLink(plugin)?.fail(new TroupeError(code, message)),
    open: ({ sessionId, pluginOptions }) =>
      configured().hold(sessionId, (actor) => actor.info(threadId), pluginOptions),
    info: ({ sessionId }) => configured().info(sessionId),
    async capture({ sessionId, at }) {
      const snapshot = await configured().snapshot(sessionId, at);
      return moving({ snapshot }, [snapshot.buffer]);
    },
    async adopt({ sessionId, snapshot, making }) {
      const { stored, settings } = await configured().adopt(sessionId, decode(snapshot), making).opened();
      return { sessionId, parentSessionId: stored.parentId ?? null, config: settings.config };
    },
    view: ({ sessionId }) => configured().use(sessionId, viewOf),
    messages: ({ sessionId, range }) => configured().use(sessionId, (session) => session.graph.stored(range)),
    tree: ({ sessionId }) => configured().tree(sessionId),
    resume: ({ sessionId }) => configured().use(sessionId, async (session) => void (await readAhead(session))),
    spending: ({ sessionId }) => configured().use(sessionId, (session) => session.spending.report()),
    setBudget: ({ sessionId, budget }) => configured().use(sessionId, (session) => session.spending.set(budget)),
    surface: ({ sessionId }) => configured().use(sessionId, surfaceOf),
    setConfig: ({ sessionId, change }) => configured().actor(sessionId).setConfig(change),
    refreshTools: ({ sessionId }) => configured().actor(sessionId).refreshTools(),
    compact: ({ sessionId, instructions }) => configured().actor(sessionId).compact(instructions),
    append: ({ sessionId, request }) => configured().actor(sessionId).append(request),
    extend: ({ sessionId, extension }) => configured().actor(sessionId).extend(extension),
    hostCall: ({ sessionId, ...call }) => configured().use(sessionId, (session) => serveHostCall(session, call)),
    addInput: ({ sessionId, ...input }) => configured().hold(sessionId, (actor) => actor.addInput(input)),
    inputs: ({ sessionId }) => configured().use(sessionId, (session) => session.inputs.untaken),
    cancelInput: ({ sessionId, named }) => configured().use(sessionId, (session) => cancelInput(session, named)),
    completeTool: ({ sessionId, key, output }) =>
      configured().use(sessionId, (session) => completeTool(session, key, output)),
    observe: ({ sessionId, reader, cursor }) =>
      configured().use(sessionId, () => configured().observe(sessionId, reader, cursor)),
    unobserve: ({ sessionId, reader }) => configured().unobserve(sessionId, reader),
    releaseIdle: ({ sessionId }) => configured().release(sessionId, { idle: true }),
    park: ({ sessionId }) => configured().park(sessionId),
    handOver: ({ sessionId }) => configured().handOver(sessionId),
    takeOver: ({ sessionId, remnant }) => configured().takeOver(sessionId, remnant),
    operate: (request, signal: AbortSignal) => configured().operate(request, signal),
    operations: () => configured().operations(),
    release: ({ sessionId }) => configured().release(sessionId),
    cancelWork: ({ sessionId, reason }) => configured().cancelWork(sessionId, reason),
    discard: ({ sessionId }) => configured().discard(sessionId),
    stats: () => ({ ...configured().stats(), threadId }),
    shutdown: ({ drainMs }) => configured().shutdown(drainMs),
  } satisfies Served<SessionWorkerService>;
  serve(parentPort, service);
}

function surfaceOf({ tools, surface }: Session): SessionSurface {
  return { tools: tools.catalog(), operations: surface.table.operations(), triggers: surface.triggers.all };
}
