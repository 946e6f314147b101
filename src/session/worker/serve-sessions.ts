import { type MessagePort, threadId } from "node:worker_threads";
import { TroupeError } from "../../kernel/index.js";
import { decode, moving, type Served, serve } from "../../wire/index.js";
import type { SessionSurface, SessionWorkerService } from "../calls/index.js";
import { serveHostCall } from "../host-services/index.js";
import type { Session } from "../state/index.js";
import { cancelInput, completeTool, readAhead, viewOf } from "../state/index.js";
import { type WorkerParts, WorkerWiring } from "./worker-wiring.js";

/** The session worker's side of everything the main thread asks of it. */
export function serveSessions(parentPort: MessagePort, parts: Omit<WorkerParts, "service">): void {
  let wiring: WorkerWiring | undefined;
  const worker = (): WorkerWiring => {
    if (wiring === undefined)
      throw new TroupeError("worker_not_configured", "This session worker is not configured yet.");
    return wiring;
  };
  const sessions = () => worker().sessions;
  const service = {
    async configure(setup) {
      wiring = await WorkerWiring.create(setup, { ...parts, service });
      return { threadId, inline: wiring.inlineManifests };
    },
    attachPlugin: (lane) => worker().workerLink(lane.plugin)?.attach(lane),
    failPlugin: ({ plugin, code, message }) => worker().workerLink(plugin)?.fail(new TroupeError(code, message)),
    open: (argument) => sessions().open(argument),
    info: ({ sessionId }) => sessions().info(sessionId),
    async capture({ sessionId, at }) {
      const snapshot = await sessions().snapshot(sessionId, at);
      return moving({ snapshot }, [snapshot.buffer]);
    },
    async adopt({ sessionId, snapshot, making }) {
      const { stored, settings } = await sessions().adopt(sessionId, decode(snapshot), making).opened();
      return { sessionId, parentSessionId: stored.parentId ?? null, config: settings.config };
    },
    view: ({ sessionId }) => sessions().use(sessionId, viewOf),
    messages: ({ sessionId, range }) => sessions().use(sessionId, (session) => session.graph.stored(range)),
    tree: ({ sessionId }) => sessions().tree(sessionId),
    resume: ({ sessionId }) => sessions().use(sessionId, async (session) => void (await readAhead(session))),
    spending: ({ sessionId }) => sessions().use(sessionId, (session) => session.spending.report()),
    setBudget: ({ sessionId, budget }) => sessions().use(sessionId, (session) => session.spending.set(budget)),
    surface: ({ sessionId }) => sessions().use(sessionId, surfaceOf),
    setConfig: ({ sessionId, change }) => sessions().actor(sessionId).setConfig(change),
    refreshTools: ({ sessionId }) => sessions().actor(sessionId).refreshTools(),
    compact: ({ sessionId, instructions }) => sessions().actor(sessionId).compact(instructions),
    append: ({ sessionId, request }) => sessions().actor(sessionId).append(request),
    extend: ({ sessionId, extension }) => sessions().actor(sessionId).extend(extension),
    hostCall: ({ sessionId, ...call }) => sessions().use(sessionId, (session) => serveHostCall(session, call)),
    addInput: ({ sessionId, ...input }) => sessions().hold(sessionId, (actor) => actor.addInput(input)),
    inputs: ({ sessionId }) => sessions().use(sessionId, (session) => session.inputs.untaken),
    cancelInput: ({ sessionId, named }) => sessions().use(sessionId, (session) => cancelInput(session, named)),
    completeTool: ({ sessionId, key, output }) =>
      sessions().use(sessionId, (session) => completeTool(session, key, output)),
    observe: ({ sessionId, reader, cursor }) =>
      sessions().use(sessionId, () => worker().observations.observe(sessionId, reader, cursor)),
    unobserve: ({ sessionId, reader }) => worker().observations.unobserve(sessionId, reader),
    releaseIdle: ({ sessionId }) => sessions().release(sessionId, { idle: true }),
    park: ({ sessionId }) => sessions().park(sessionId),
    handOver: ({ sessionId }) => sessions().handOver(sessionId),
    takeOver: ({ sessionId, notes }) => sessions().takeOver(sessionId, notes),
    operate: (request, signal: AbortSignal) => sessions().operate(request, signal),
    inspect: ({ sessions: wanted }) => sessions().inspect(wanted),
    operations: () => sessions().services.surfaces.common.table.operations(),
    release: ({ sessionId }) => sessions().release(sessionId),
    cancelWork: ({ sessionId, reason }) => sessions().cancelWork(sessionId, reason),
    discard: ({ sessionId }) => sessions().discard(sessionId),
    stats: ({ known }) => worker().stats(known),
    shutdown: ({ drainMs }) => worker().shutdown(drainMs),
  } satisfies Served<SessionWorkerService>;
  serve(parentPort, service);
}

function surfaceOf({ tools, surface }: Session): SessionSurface {
  return { tools: tools.catalog(), operations: surface.table.operations(), triggers: surface.triggers.all };
}
