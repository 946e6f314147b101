import { assign, emit, setup } from "xstate";
import { asTroupeError, type TroupeError } from "../../kernel/index.js";
import { IDLE, type Life, type LifeEvent, lifeAfter, mayPark } from "../state/index.js";

/** What waits for its place in a session: which call of the actor's table it is, and what is asked for. */
export interface Mail {
  readonly id: number;
  readonly kind:
    | "turn"
    | "inputs"
    | "resume"
    | "agent"
    | "config"
    | "tools"
    | "compact"
    | "rewind"
    | "append"
    | "extend"
    | "operation";
}

/** Who wants a session to leave memory. For the host, a session that was never stored is stored too. */
type ParkedFor = "policy" | "host";

/** Everything the life of a session depends on, as plain values. Who waits for what is in the actor's own tables. */
export interface LifeContext {
  readonly life: Life;
  /** What waits. What is being done is not in it. */
  readonly mailbox: readonly Mail[];
  /** Calls under way that are not in the mailbox. */
  readonly held: number;
  /** Set when the session is to leave memory as soon as nobody needs it. */
  readonly parkedFor: ParkedFor | undefined;
  /** The session finishes what is queued, and nothing more. */
  readonly leaving: boolean;
  /** Why the session could not be opened, or not be stored when it left. */
  readonly failure: TroupeError | undefined;
}

/** What only the session itself knows at the moment of the event. */
interface AtRest {
  /** An input waits that begins a turn as soon as the session is idle. */
  readonly inputsWait: boolean;
}

export type ChartEvent =
  | LifeEvent
  | ({ readonly type: "opened"; readonly resume?: Mail } & AtRest)
  | { readonly type: "open.failed"; readonly error: unknown }
  | { readonly type: "posted"; readonly mail: Mail }
  | ({ readonly type: "work.done" } & AtRest)
  | { readonly type: "held" }
  | ({ readonly type: "released" } & AtRest)
  | ({ readonly type: "park"; readonly wanted: ParkedFor } & AtRest)
  | ({ readonly type: "saved"; readonly complete: boolean } & AtRest)
  | { readonly type: "save.failed"; readonly error: unknown }
  | { readonly type: "leave" };

/** What the chart asks its actor to do once an event is through. An event answers `open`, `work` and `save`. */
export type Asked =
  | { readonly type: "open" }
  | { readonly type: "work"; readonly id: number | undefined }
  | { readonly type: "save"; readonly always: boolean }
  /** The session was to be parked and stays: somebody came, or it could not be stored. */
  | { readonly type: "stays"; readonly error?: unknown };

/** The same for every event that may let the session rest: nobody needs it, and somebody wants it to leave memory. */
function wantsToPark({ parkedFor, mailbox, life, held }: LifeContext, event: ChartEvent): boolean {
  const wanted = parkedFor !== undefined || event.type === "park";
  const stillHeld = event.type === "released" ? held - 1 : held;
  const inputsWait = "inputsWait" in event && event.inputsWait;
  return wanted && stillHeld === 0 && mailbox.length === 0 && !inputsWait && mayPark(life);
}

function parkedForAfter({ parkedFor, held }: LifeContext, event: ChartEvent): ParkedFor | undefined {
  if (event.type !== "park" || parkedFor === "host") return parkedFor;
  // The runtime's own wish is for a session nobody needs, and it wishes again.
  return event.wanted === "policy" && held > 0 ? parkedFor : event.wanted;
}

function errorOf(event: ChartEvent): unknown {
  return "error" in event ? event.error : undefined;
}

/**
 * The life of a session. Nothing is invoked: the chart asks for a turn or another piece of work, and an event says that
 * it is done. What happens inside a turn is the kernel's machine.
 */
export const sessionMachine = setup({
  types: { context: {} as LifeContext, events: {} as ChartEvent, emitted: {} as Asked },
  guards: {
    isStale: ({ context }) => context.life.kind === "stale",
    isFree: ({ context }) => context.held === 0,
    isLeftStale: ({ context }) => context.life.kind === "stale" && context.held === 1,
    resumes: ({ event }) => event.type === "opened" && event.resume !== undefined,
    hasMail: ({ context }) => context.mailbox.length > 0,
    isLeaving: ({ context }) => context.leaving,
    isThrough: ({ context }) => context.leaving && context.mailbox.length === 0,
    mayPark: ({ context, event }) => wantsToPark(context, event),
    isSaved: ({ context, event }) => event.type === "saved" && event.complete && wantsToPark(context, event),
  },
  actions: {
    live: assign(({ context, event }) => ({ life: lifeAfter(context.life, event as LifeEvent) })),
    // A turn that is stored ends with its work.
    endTurn: assign(({ context }) => ({ life: lifeAfter(context.life, { type: "turn.ended" }) })),
    startNext: emit(({ context }) => ({ type: "work", id: context.mailbox[0]?.id })),
    takeNext: assign(({ context }) => ({ mailbox: context.mailbox.slice(1) })),
    wish: assign(({ context, event }) => ({ parkedFor: parkedForAfter(context, event) })),
    hold: assign(({ context }) => ({ held: context.held + 1 })),
    release: assign(({ context }) => ({ held: context.held - 1 })),
    leave: assign({ leaving: true }),
    save: emit(({ context }) => ({ type: "save", always: context.parkedFor === "host" })),
    // Who asked for it and waits goes on waiting.
    stay: assign(({ context }) => ({ parkedFor: context.parkedFor === "host" ? ("host" as const) : undefined })),
    stays: emit({ type: "stays" }),
    stayUnstored: assign({ parkedFor: undefined }),
    staysUnstored: emit(({ event }) => ({ type: "stays", error: errorOf(event) })),
    failToOpen: assign(({ event }) => ({ failure: asTroupeError(errorOf(event), "session_open_failed") })),
    failToPark: assign(({ event }) => ({ failure: asTroupeError(errorOf(event), "session_park_failed") })),
  },
}).createMachine({
  id: "session",
  initial: "opening",
  context: {
    life: IDLE,
    mailbox: [],
    held: 0,
    parkedFor: undefined,
    leaving: false,
    failure: undefined,
  },
  on: {
    posted: { actions: assign(({ context, event }) => ({ mailbox: [...context.mailbox, event.mail] })) },
    held: { actions: "hold" },
    released: { actions: "release" },
    park: { actions: "wish" },
    leave: { actions: "leave" },
    "turn.*": { actions: "live" },
    "session.stale": { actions: "live" },
  },
  states: {
    opening: {
      entry: emit({ type: "open" }),
      on: {
        opened: [
          {
            guard: "resumes",
            target: "running",
            actions: emit(({ event }) => ({ type: "work", id: event.resume?.id })),
          },
          { guard: "hasMail", target: "running", actions: ["startNext", "takeNext"] },
          { guard: "isLeaving", target: "parking" },
          { guard: "mayPark", target: "parking" },
          { target: "idle" },
        ],
        "open.failed": { target: "failed", actions: "failToOpen" },
      },
    },
    idle: {
      on: {
        posted: { target: "running", actions: emit(({ event }) => ({ type: "work", id: event.mail.id })) },
        park: [{ guard: "mayPark", target: "parking", actions: "wish" }, { actions: "wish" }],
        released: [
          { guard: "isLeftStale", target: "stale", actions: "release" },
          { guard: "mayPark", target: "parking", actions: "release" },
          { actions: "release" },
        ],
        leave: { target: "parking", actions: "leave" },
        "session.stale": [{ guard: "isFree", target: "stale", actions: "live" }, { actions: "live" }],
      },
    },
    running: {
      on: {
        "work.done": [
          { guard: "isStale", target: "stale" },
          { guard: "hasMail", target: "running", reenter: true, actions: ["startNext", "takeNext"] },
          { guard: "isLeaving", target: "parking" },
          { guard: "mayPark", target: "parking" },
          { target: "idle" },
        ],
      },
      exit: "endTurn",
    },
    // The session is still there: a message that comes meanwhile finds it as it was, and it stays.
    parking: {
      entry: "save",
      on: {
        saved: [
          { guard: "isThrough", target: "parked" },
          { guard: "isSaved", target: "parked" },
          { guard: "hasMail", target: "running", actions: ["stay", "stays", "startNext", "takeNext"] },
          { target: "idle", actions: ["stay", "stays"] },
        ],
        "save.failed": [
          { guard: "isLeaving", target: "failed", actions: "failToPark" },
          { guard: "isStale", target: "stale" },
          { guard: "hasMail", target: "running", actions: ["stayUnstored", "staysUnstored", "startNext", "takeNext"] },
          { target: "idle", actions: ["stayUnstored", "staysUnstored"] },
        ],
      },
    },
    parked: { type: "final" },
    // The store may hold something else than the memory: the next message opens the session anew.
    stale: { type: "final" },
    failed: { type: "final" },
  },
});

/**
 * The chart as its actor runs it. The events of a turn change `life` and nothing else, whatever the state: they go past
 * XState's search for transitions to the snapshot it would have made, in a fifth of the time.
 */
export const sessionLogic: typeof sessionMachine = Object.create(sessionMachine, {
  transition: {
    value: (...[snapshot, event, scope]: Parameters<typeof sessionMachine.transition>) => {
      if (!isTurnEvent(event)) return sessionMachine.transition(snapshot, event, scope);
      return { ...snapshot, context: { ...snapshot.context, life: lifeAfter(snapshot.context.life, event) } };
    },
  },
});

function isTurnEvent(event: ChartEvent): event is LifeEvent {
  return event.type.startsWith("turn.");
}
