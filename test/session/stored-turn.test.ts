import { expect, test } from "vitest";
import { definePlugin, nativeToolStep } from "../../src/plugin/index.js";
import { SessionActor } from "../../src/session/actor.js";
import { openSession } from "../../src/session/open-session.js";
import type { SessionServices } from "../../src/session/session-parts.js";
import { viewOf } from "../../src/session/session-view.js";
import { diskFull, MemoryStore } from "../support/memory-store.js";
import { memoryServices } from "./turn/memory-session.js";

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
function services(failing: number): Promise<SessionServices> {
  const store = new MemoryStore();
  store.onCommit = (_, nth) => {
    if (nth === failing) throw diskFull();
  };
  return memoryServices({ protocol: leaves }, store);
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
