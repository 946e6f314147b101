import { and, assign, fromPromise, not, setup } from "xstate";
import { asTroupeError, type TroupeError } from "../kernel/index.js";
import type { Session } from "./session.js";
import { IDLE, type Life, type LifeEvent, lifeAfter } from "./session-life.js";
import { saveSession } from "./session-saving.js";

/** What waits for its place: a turn, or an operation that needs the session to itself. */
export interface Work {
  /** Does it and settles its caller; never rejects. */
  run(session: Session): Promise<void>;
  readonly reject: (error: TroupeError) => void;
}

/** Who needs the session in memory beside its mailbox, and whether it is to be parked when nobody does. */
export interface Stay {
  /** Calls under way that are not in the mailbox. */
  held: number;
  /** `policy`: the runtime wants the memory. `host`: somebody asked, and also what was never stored is stored. */
  park: "policy" | "host" | undefined;
  /** It was to be parked and stays: somebody came, or it could not be stored. */
  readonly onStays: (error?: unknown) => void;
}

/** The mailbox: plain and shared by reference, because copying it for every message would be the actor's main cost. */
interface Context {
  readonly mailbox: Work[];
  readonly stay: Stay;
  readonly open: () => Promise<Session>;
  readonly life: Life;
  readonly session: Session | undefined;
  readonly failure: TroupeError | undefined;
  readonly leaving: boolean;
}

/** The life of a session. A turn is one invoked child; what happens inside it is the kernel's machine. */
export const sessionMachine = setup({
  types: {
    context: {} as Context,
    input: {} as { open: () => Promise<Session>; stay: Stay },
    events: {} as { type: "posted" } | { type: "leave" } | { type: "park" } | LifeEvent,
  },
  actors: {
    open: fromPromise<Session, { open: () => Promise<Session> }>(({ input }) => input.open()),
    work: fromPromise<void, { session: Session; mailbox: Work[] }>(async ({ input }) =>
      input.mailbox.shift()?.run(input.session),
    ),
    // Nothing else: who comes meanwhile finds the session as it was, and it stays.
    save: fromPromise<void, { session: Session; stay: Stay }>(async ({ input: { session, stay } }) => {
      // A turn that was left in the middle begins again from what the last one stored.
      if (!session.life.isSuspended) await saveSession(session, { always: stay.park === "host" });
    }),
  },
  actions: {
    live: assign({ life: ({ context, event }) => lifeAfter(context.life, event as LifeEvent) }),
  },
  guards: {
    isStale: ({ context }) => context.life.kind === "stale",
    hasMail: ({ context }) => context.mailbox.length > 0,
    isLeaving: ({ context }) => context.leaving,
    mayPark: ({ context: { stay, mailbox, session } }) =>
      stay.park !== undefined && stay.held === 0 && mailbox.length === 0 && session?.mayPark !== false,
    isSaved: ({ context: { session } }) => session?.stored.isSaved === true,
  },
}).createMachine({
  id: "session",
  initial: "opening",
  context: ({ input }) => ({
    mailbox: [],
    ...input,
    life: IDLE,
    session: undefined,
    failure: undefined,
    leaving: false,
  }),
  on: {
    leave: { actions: assign({ leaving: true }) },
    "turn.*": { actions: "live" },
    "session.stale": { actions: "live" },
  },
  states: {
    opening: {
      invoke: {
        src: "open",
        input: ({ context }) => ({ open: context.open }),
        onDone: { target: "idle", actions: assign({ session: ({ event }) => event.output }) },
        onError: {
          target: "failed",
          actions: assign({ failure: ({ event }) => asTroupeError(event.error, "session_open_failed") }),
        },
      },
    },
    idle: {
      always: [
        { guard: "hasMail", target: "running" },
        { guard: "isLeaving", target: "parking" },
        { guard: "mayPark", target: "parking" },
      ],
      on: { posted: "running", park: { guard: "mayPark", target: "parking" } },
    },
    running: {
      invoke: {
        src: "work",
        input: ({ context }) => ({ session: context.session as Session, mailbox: context.mailbox }),
        onDone: [{ guard: "isStale", target: "stale" }, { target: "idle" }],
        onError: "idle",
      },
    },
    // What the store holds is not what is here: let go, so that the next message opens the session anew.
    stale: {
      always: {
        target: "failed",
        actions: [
          ({ context }) => context.session?.close(),
          assign({
            failure: ({ context: { life } }) => (life.kind === "stale" ? life.error : undefined),
          }),
        ],
      },
    },
    parking: {
      invoke: {
        src: "save",
        input: ({ context: { session, stay } }) => ({ session: session as Session, stay }),
        onDone: [
          { guard: and(["isLeaving", not("hasMail")]), target: "parked" },
          { guard: and(["mayPark", "isSaved"]), target: "parked" },
          { target: "idle", actions: ({ context }) => context.stay.onStays() },
        ],
        onError: [
          {
            guard: "isLeaving",
            target: "failed",
            actions: [
              ({ context }) => context.session?.close(),
              assign({ failure: ({ event }) => asTroupeError(event.error, "session_park_failed") }),
            ],
          },
          { guard: "isStale", target: "stale" },
          { target: "idle", actions: ({ context, event }) => context.stay.onStays(event.error) },
        ],
      },
    },
    parked: { type: "final", entry: ({ context }) => context.session?.close() },
    failed: { type: "final" },
  },
});
