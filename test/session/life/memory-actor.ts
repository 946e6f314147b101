import { openSession } from "../../../src/session/life/open-session.js";
import { SessionActor, type SessionActorOptions } from "../../../src/session/life/session-actor.js";
import type { SessionServices } from "../../../src/session/state/session.js";
import { diskFull, MemoryStore } from "../../support/memory-store.js";
import { type MemorySessionOptions, memoryServices } from "../turn/memory-session.js";

/** What a session needs, over a store in this thread of which the n-th write fails, when one is to. */
export function servicesOf({ failing, ...options }: MemorySessionOptions & { readonly failing?: number } = {}) {
  const store = new MemoryStore();
  store.onCommit = (_, nth) => {
    if (nth === failing) throw diskFull();
  };
  return memoryServices(options, store);
}

/** A session's actor as a worker has it, but for the thread. */
export function openActor(services: SessionServices, options: Partial<SessionActorOptions> = {}): SessionActor {
  return new SessionActor("s", {
    open: (chart) => openSession(services, "s", { chart, take: "always" }),
    clock: services.clock,
    mailboxLimit: 4,
    onActivity: () => undefined,
    onRest: () => undefined,
    onMoved: () => undefined,
    onEnded: () => undefined,
    stoppable: (run) => run(new AbortController().signal),
    ...options,
  });
}

/** For a turn nobody listens to or cancels. */
export const unheard: { readonly emit: () => void; readonly signal: AbortSignal } = {
  emit: () => undefined,
  signal: new AbortController().signal,
};
