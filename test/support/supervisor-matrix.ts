/**
 * The supervisor matrix: what code can do to its thread × the thread × the moment. Each cell says what its own turn comes
 * to and what the host is warned of, or why the cell cannot be. The tests in test/integration/supervisor do every deed for
 * real; in each of them the main thread lives, every turn of a neighbour succeeds, and a next turn works.
 */
export const DEEDS = [
  "throw",
  "rejection",
  "exit",
  "spin",
  "Atomics.wait",
  "native block",
  "heap",
  "Buffers",
  "flood",
  "malformed frame",
  "patched prototypes",
] as const;
export type Deed = (typeof DEEDS)[number];

export const PHASES = ["starting", "idle", "in a turn", "in a commit"] as const;
export type Phase = (typeof PHASES)[number];

export const THREADS = ["session worker", "plugin host own", "plugin host shared", "pool thread"] as const;
export type SupervisedThread = (typeof THREADS)[number];

/** What a deed comes to. */
export interface Reason {
  /** Of the turn that it is done in or behind: how it ends, with the codes of its error and of that error's cause. */
  readonly turn: string;
  /** The code of the warning the host gets, with its reason. */
  readonly warned?: string;
  /** It may get this one too. */
  readonly mayWarn?: string;
}

export interface Impossible {
  readonly cannotBe: string;
}

export type Row = Readonly<Record<Deed, Reason | Impossible>>;

/** The deeds that end or hold a thread; the three ways to block one look the same from outside. */
function ends(
  thrown: Reason,
  rejection: Reason,
  exit: Reason,
  blocked: Reason,
  heap: Reason,
): Readonly<Record<Ends, Reason>> {
  return {
    throw: thrown,
    rejection,
    exit,
    spin: blocked,
    "Atomics.wait": blocked,
    "native block": blocked,
    heap,
  };
}
type Ends = "throw" | "rejection" | "exit" | "spin" | "Atomics.wait" | "native block" | "heap";

const FINISHED = "finished";
/** It is contained, and costs nobody anything. */
const NOTHING: Reason = { turn: FINISHED };
/** Nobody waits for a rejection that nobody handles: the host is told whose it is, and the thread goes on. */
const FLOATING: Reason = { turn: FINISHED, warned: "floating_rejection" };
/** No call of anybody says so: the host is warned. */
const idle = (reason: string): Reason => ({ turn: FINISHED, warned: `worker_lost (${reason})` });

const IDLE = ends(idle("error"), FLOATING, idle("exit"), idle("blocked"), idle("heap"));

const hookFails = (cause: string): Reason => ({ turn: `refused: plugin_prepare_turn < ${cause}` });
const HOST_IN_A_TURN: Row = {
  ...ends(
    hookFails("hook_failed"),
    FLOATING,
    hookFails("worker_lost (exit)"),
    hookFails("plugin_blocked (blocked)"),
    hookFails("plugin_out_of_memory (heap)"),
  ),
  // Of a thread whose hooks were looked at together nobody is blamed: the call is certain when it is made again, alone.
  Buffers: { ...hookFails("plugin_out_of_memory (external)"), mayWarn: "worker_lost (external)" },
  // What it asks of host services is answered or refused, between the calls of others.
  flood: NOTHING,
  // Whose message it was is certain when the call is made again, alone: of the first thread the host is warned.
  "malformed frame": { ...hookFails("plugin_malformed_message (malformed)"), warned: "worker_lost (malformed)" },
  "patched prototypes": hookFails("plugin_patched_builtins (patched)"),
};
/** A turn whose plugin cannot give its state is stored with the last one that it gave. */
const captureFails = (words: string): Reason => ({ turn: `finished, issue: plugin_capture_failed (${words})` });

/** Whether the host has one plugin or a group of them is no difference, but for who else is on it. */
const PLUGIN_HOST: Readonly<Record<Phase, Row>> = {
  starting: {
    ...HOST_IN_A_TURN,
    throw: hookFails("plugin_state_failed"),
    flood: {
      cannotBe: "While its state is made a plugin has neither a port nor host services: there is nobody to flood.",
    },
  },
  idle: {
    ...IDLE,
    // Found when the next call takes the thread, whose answer still leaves.
    Buffers: idle("external"),
    flood: NOTHING,
    "malformed frame": idle("malformed"),
    // Found when the next call takes the thread; it is made again on another.
    "patched prototypes": idle("patched"),
  },
  "in a turn": HOST_IN_A_TURN,
  "in a commit": {
    ...ends(
      captureFails("thrown on purpose"),
      FLOATING,
      captureFails("ended its thread"),
      captureFails("blocked its thread"),
      captureFails("used more heap"),
    ),
    Buffers: captureFails("held more memory in buffers"),
    flood: NOTHING,
    // The state is asked for again, of a thread that has the one its last answer left: there is nothing it does again.
    "malformed frame": idle("malformed"),
    "patched prototypes": captureFails("replaced functions"),
  },
};

/** In memory the turns of a session worker end with it, the neighbours' too, and say why. The host is warned as well. */
const workerLost = (reason: string): Reason => ({
  turn: `refused: worker_lost (${reason})`,
  warned: `worker_lost (${reason})`,
});
/**
 * Inline code is the host's own: a session worker's memory outside of its heap has no limit but the process's, its
 * built-ins are whatever it makes of them, and its port to the main thread is the runtime's.
 */
const OWN_MEMORY: Impossible = {
  cannotBe:
    "A session worker's buffers have no limit of their own: an inline plugin, a model or a protocol is trusted with them (docs/isolation.md).",
};
const OWN_BUILTINS: Impossible = {
  cannotBe:
    "Inline code that replaces built-ins replaces them for the runtime itself: it is trusted not to (docs/isolation.md).",
};
const INLINE: Pick<Row, "Buffers" | "flood" | "malformed frame" | "patched prototypes"> = {
  Buffers: OWN_MEMORY,
  // The main thread reads what is none of its calls, and passes it over.
  flood: NOTHING,
  "malformed frame": NOTHING,
  "patched prototypes": OWN_BUILTINS,
};
const SESSION_IN_A_TURN: Row = {
  ...ends(hookFails("hook_failed"), FLOATING, workerLost("exit"), workerLost("blocked"), workerLost("heap")),
  ...INLINE,
};

const SESSION_WORKER: Readonly<Record<Phase, Row>> = {
  starting: { ...SESSION_IN_A_TURN, throw: hookFails("plugin_state_failed") },
  idle: { ...IDLE, ...INLINE },
  "in a turn": SESSION_IN_A_TURN,
  "in a commit": { ...SESSION_IN_A_TURN, throw: captureFails("thrown on purpose") },
};

const toolFails = (code: string): Reason => ({ turn: `finished, tool: ${code}` });
const NO_COMMIT: Impossible = {
  cannotBe: "Nothing of a commit runs on a pool thread: whatever it does then, it does while it is idle.",
};

const LOADS_TOO_LONG: Reason = { turn: "no runtime: tool_load_timeout" };

const POOL_THREAD: Readonly<Record<Phase, Row>> = {
  // Its module is imported, to be described, before there is a session: the runtime does not start.
  starting: {
    throw: { turn: "no runtime: tool_module_invalid" },
    // Its thread ends when it has described the tool, and the tool's calls get another.
    rejection: NOTHING,
    exit: { turn: "no runtime: tool_worker_lost" },
    spin: LOADS_TOO_LONG,
    "Atomics.wait": LOADS_TOO_LONG,
    "native block": LOADS_TOO_LONG,
    heap: { turn: "no runtime: tool_out_of_memory" },
    Buffers: { turn: "no runtime: tool_out_of_memory" },
    flood: NOTHING,
    "malformed frame": { turn: "no runtime: tool_malformed_message" },
    // A module may replace what it likes while it is imported: its own calls run with it, each on a thread of its own.
    "patched prototypes": NOTHING,
  },
  // A thread without a task is nobody's: the next task gets another one.
  idle: {
    ...ends(NOTHING, NOTHING, NOTHING, NOTHING, NOTHING),
    Buffers: NOTHING,
    flood: NOTHING,
    "malformed frame": {
      cannotBe: "A tool sees its thread's port only while an answer leaves by it, and never while the thread is idle.",
    },
    "patched prototypes": NOTHING,
  },
  "in a turn": {
    ...ends(
      toolFails("tool_failed"),
      // The tool has answered by then, and its thread goes on.
      NOTHING,
      toolFails("tool_worker_lost"),
      toolFails("tool_timeout"),
      toolFails("tool_out_of_memory"),
    ),
    Buffers: toolFails("tool_out_of_memory"),
    // Its line to the thread that started it was closed before the tool was imported.
    flood: NOTHING,
    "malformed frame": toolFails("tool_malformed_message"),
    "patched prototypes": toolFails("tool_patched_builtins"),
  },
  "in a commit": {
    throw: NO_COMMIT,
    rejection: NO_COMMIT,
    exit: NO_COMMIT,
    spin: NO_COMMIT,
    "Atomics.wait": NO_COMMIT,
    "native block": NO_COMMIT,
    heap: NO_COMMIT,
    Buffers: NO_COMMIT,
    flood: NO_COMMIT,
    "malformed frame": NO_COMMIT,
    "patched prototypes": NO_COMMIT,
  },
};

export const MATRIX: Readonly<Record<SupervisedThread, Readonly<Record<Phase, Row>>>> = {
  "session worker": SESSION_WORKER,
  "plugin host own": PLUGIN_HOST,
  "plugin host shared": PLUGIN_HOST,
  "pool thread": POOL_THREAD,
};

/** What takes longer than blocked threads are given: filling memory, and calling host services thousands of times. */
export function takesLong(deed: Deed): boolean {
  return deed === "heap" || deed === "Buffers" || deed === "flood";
}

/** The cells of a row that can be. */
export function cellsOf(thread: SupervisedThread, phase: Phase): [deed: Deed, reason: Reason][] {
  return DEEDS.flatMap((deed): [Deed, Reason][] => {
    const cell = MATRIX[thread][phase][deed];
    return "cannotBe" in cell ? [] : [[deed, cell]];
  });
}
