import { type HostMethod, taskService } from "../../plugin/index.js";
import type { HostRequest } from "../plugins/index.js";
import { type ParentSession, visibleSession } from "./immediate-directives.js";

type TaskRequest = Omit<HostRequest, "sessionId">;

/** The services about monitors, with how many arguments each has beside the session, and whether it changes something. */
const MONITOR_SERVICES: { readonly [M in HostMethod]?: readonly [count: number, changes: boolean] } = {
  monitorSnapshot: [0, false],
  takeMonitorUpdates: [0, true],
  startMonitor: [1, true],
  stopMonitor: [1, true],
};

/** Does it change something that goes on beside the session's turns, or take it? */
export function changesBeside(method: HostMethod): boolean {
  return method === "injectTurnInput" || serviceBeside(method)?.[1] === true;
}

function serviceBeside(method: HostMethod): readonly [count: number, changes: boolean] | undefined {
  return taskService(method) ?? MONITOR_SERVICES[method];
}

/** A service with the session it is about apart from its arguments: the own one, unless one is named in front. */
export async function withSession<R extends TaskRequest>(
  session: ParentSession,
  request: R,
): Promise<R & { readonly sessionId: string }> {
  const [count] = serviceBeside(request.method) as readonly [number, boolean];
  const [named, ...behind] = request.args.length > count ? request.args : [undefined, ...request.args];
  const sessionId = (await visibleSession(session, named ?? session.id)) as string;
  if (request.method !== "transferAsyncHandles") return { ...request, sessionId, args: behind };
  const to = await visibleSession(session, behind[0]);
  return { ...request, sessionId, args: [to, ...behind.slice(1)] };
}
