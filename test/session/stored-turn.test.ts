import { expect, test } from "vitest";
import { systemClock } from "../../src/async/index.js";
import { type Commit, DEFAULT_CONFIG, TroupeError } from "../../src/kernel/index.js";
import { createScriptedModel } from "../../src/model/index.js";
import { definePlugin, loadPlugin, nativeToolStep } from "../../src/plugin/index.js";
import { SessionActor } from "../../src/session/actor.js";
import { InlineLink } from "../../src/session/inline-link.js";
import { openSession } from "../../src/session/open-session.js";
import type { SessionServices } from "../../src/session/session-parts.js";
import { viewOf } from "../../src/session/session-view.js";
import { Surfaces } from "../../src/session/surface.js";
import { Suspects } from "../../src/session/suspects.js";
import { openMemory, readHistory } from "../../src/store/index.js";
import { ToolLimits } from "../../src/tools/index.js";
import { PhaseProbe } from "../../src/trace/index.js";
import { Deadlines } from "../../src/wire/index.js";

/** A protocol that leaves for a second frame in the first turn. */
const leaves = definePlugin({
  id: "test.leaves",
  version: "1.0.0",
  protocol: {
    session: {
      beforeLlmCall: ({ turnId }) =>
        turnId === "t1" ? { kind: "switch_agent_frame", frameId: "second", task: "Go on." } : undefined,
    },
    driver: {
      buildPreamble: ({ tools }) => ({
        toolSpecs: tools,
        executionPrompt: "",
        promptContributions: [],
        syncExecutionEnvironment: false,
        interpret: nativeToolStep,
      }),
    },
  },
});

/** What a session needs, over a store in this thread whose n-th write fails. */
async function services(failing: number): Promise<SessionServices> {
  const backend = openMemory();
  let writes = 0;
  const store = {
    head: async (id: string) => backend.head(id),
    history: async (leaf: string | null) => readHistory(backend, leaf),
    component: async (hash: string) => backend.component(hash),
    commit: async (commit: Commit) => {
      if (++writes === failing) throw new TroupeError("store_write_failed", "The disk is full.", { retryable: true });
      const [result] = backend.write([{ kind: "commit", commit }]);
      if (result?.ok !== true) throw result?.error;
      return result.receipt;
    },
  };
  const link = new InlineLink({
    clock: systemClock,
    plugin: await loadPlugin(leaves, undefined, "test"),
    deadlineMs: 1_000,
    probe: new PhaseProbe(),
    host: () => Promise.reject(new Error("Nobody asks for host services here.")),
    development: false,
    optionalInChildren: false,
  });
  return {
    clock: systemClock,
    deadlines: new Deadlines(systemClock),
    // What a session uses of its store when it only opens and runs turns.
    store: store as unknown as SessionServices["store"],
    models: new Map([["", createScriptedModel({ turns: [[{ text: "You said: {input}" }]] }, systemClock)]]),
    prompt: undefined,
    budget: null,
    prices: {},
    journals: false,
    suspects: new Suspects(),
    surfaces: new Surfaces([link], [], "sequential"),
    homes: {} as SessionServices["homes"],
    config: DEFAULT_CONFIG,
    mailboxLimit: 4,
    limits: new ToolLimits(),
    host: () => Promise.reject(new Error("Nobody asks for host services here.")),
    relay: {} as SessionServices["relay"],
    trace: { listening: false, emit: () => undefined },
  };
}

const open = (shared: SessionServices) =>
  new SessionActor("s", {
    open: (chart) => openSession(shared, "s", { chart }),
    clock: shared.clock,
    mailboxLimit: 4,
    onActivity: () => undefined,
    onRest: () => undefined,
    onEnded: () => undefined,
    stoppable: (run) => run(new AbortController().signal),
  });
const unheard = { emit: () => undefined, signal: new AbortController().signal };

// turn §8.41
test("what fails behind a turn's own write is its issue: it is stored, and the session is opened anew", async () => {
  const shared = await services(2);
  const actor = open(shared);
  const result = await actor.turn("hi", unheard);
  expect(result).toMatchObject({
    outcome: { type: "frame_switch", frameId: "second", task: "Go on." },
    revision: 1,
    issues: [{ kind: "plugin", code: "frame_switch_failed", message: "The disk is full." }],
  });
  await actor.ended();
  expect(actor.failure).toMatchObject({ code: "session_stale", retryable: true });
  // The next life begins with what is stored: the turn, and the frame it left for.
  const again = open(shared);
  const { turnIndex, revision, frameId } = await viewOf(await again.opened());
  expect([turnIndex, revision, frameId]).toEqual([1, 2, "second"]);
  expect(await again.turn("still there?", unheard)).toMatchObject({ text: "You said: still there?" });
});

test("what fails before it refuses it: nothing of it is stored", async () => {
  const shared = await services(1);
  const actor = open(shared);
  await expect(actor.turn("hi", unheard)).rejects.toMatchObject({ code: "store_write_failed" });
  await actor.ended();
  const { turnIndex, revision, messageCount } = await viewOf(await open(shared).opened());
  expect([turnIndex, revision, messageCount]).toEqual([0, 0, 0]);
});
