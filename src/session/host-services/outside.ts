import type { HostMethod } from "../../plugin/index.js";
import type { HostRequest } from "../plugins/index.js";
import type { Session } from "../state/index.js";

type OwnRequest = Omit<HostRequest, "sessionId"> & { readonly sessionId?: string };
type RunningTurn = NonNullable<Session["life"]["unstoredTurn"]>;

/**
 * Has the main thread serve what goes on outside of sessions: tasks, monitors, processes, events. `nth`: which of its call's
 * services it is; undefined: one that changes nothing, or one of a call that is not made again.
 */
export function askOutside(
  session: Session,
  { sessionId = session.id, ...request }: OwnRequest,
  nth: number | undefined,
): Promise<unknown> {
  const { pluginId, method, args } = request;
  const turn = session.life.unstoredTurn;
  const name = turn && nameOf(turn, request, nth);
  const whose = sessionId === session.id ? "" : `${session.id}:`;
  const asked = turn && name && `${whose}${turn.turnId}:${name}`;
  return session.services.relay("outside", { sessionId, pluginId, method, args, asked });
}

/**
 * What is asked for by a call of a turn, the same when another worker makes the call again: of a hook, which repeats itself,
 * by its place in the order; of a tool by what it asks for. Undefined: asked for again, it is something else.
 */
function nameOf({ journal }: RunningTurn, request: OwnRequest, nth: number | undefined): string | undefined {
  const { asking, tool, method } = request;
  if (asking?.place !== undefined && nth !== undefined)
    return `${asking.name((place) => journal.number(place))}:${nth + 1}`;
  return MADE_ONCE.includes(method) ? tool?.name(request) : undefined;
}

/** Of these, what a call has asked for is found again under its name. */
const MADE_ONCE: readonly HostMethod[] = [
  "spawnHiddenTask",
  "spawnManagedTask",
  "registerBackgroundTask",
  "startTurnTask",
  "takeMonitorUpdates",
  "startProcess",
  "writeToProcess",
  "signalProcess",
  "emitTrigger",
];
