import { spawn } from "node:child_process";
import { once } from "node:events";
import type { Session, Troupe } from "troupe";
import { describe, expect, test } from "vitest";
import { ask, askInTurn, asking, askOne, type Call, told, turnThatAsks, valueIn } from "../../support/asking.js";
import { firstToolValue, fixture, plugin, refusalOf, startTroupe, until } from "../../support/runtime.js";

const HANG = told({ hang: true });
const direct = (source: string): Call => ["directCompletion", { messages: [{ role: "user", text: "?" }] }, source];

/** How many completions hang in the worker of a session, and how many were given up there. */
async function hungIn(session: Session): Promise<{ asked: number; givenUp: number }> {
  return JSON.parse(valueIn<{ text: string }>(await askOne(session, ...direct("counts"))).text);
}

const untilRunning = (session: Session) =>
  until(`${session.id} runs`, async () => (await session.view()).running !== null);

const untilIdle = (session: Session) =>
  until(`${session.id} is idle`, async () => (await session.view()).running === null);

async function workerOf(troupe: Troupe, session: Session): Promise<number> {
  const { threadId } = await session.info();
  const { workers } = await troupe.stats();
  return workers.findIndex((worker) => worker.threadId === threadId);
}

const restarts = async (troupe: Troupe) => {
  const { workers, plugins } = await troupe.stats();
  return { workers: workers.map((worker) => worker.restarts), plugins: plugins.map((each) => each.restarts) };
};

async function parentAndChild(troupe: Troupe) {
  const parent = await troupe.session("p");
  await ask(parent, ["createSession", { sessionId: "p/child" }]);
  return { parent, child: await troupe.session("p/child") };
}

const nothingLost = async (troupe: Troupe) => {
  const { turns } = await troupe.stats();
  expect(turns.asked).toBe(turns.finished + turns.refused);
};

describe("in the middle of host services", () => {
  test("the plugin's thread dies: its calls fail, what they waited for is given up, and the next turn works", async () => {
    const troupe = await startTroupe(asking("worker", { sessionWorkers: 1 }));
    const { parent, child } = await parentAndChild(troupe);
    const other = await troupe.session("other");
    const idle = await troupe.session("idle");
    const turns = [turnThatAsks(parent, ["startTurn", "p/child", HANG]), turnThatAsks(other, direct("hangs"))] as const;
    await untilRunning(child);
    await until("the model is asked", async () => (await hungIn(idle)).asked === 1);
    await troupe.kill({ plugin: "test.asks-host" });
    const [first, second] = await Promise.all(turns);
    expect([first, second].map(firstToolValue)).toEqual(["tool_worker_lost", "tool_worker_lost"]);
    expect([first, second].map(({ outcome }) => outcome.type)).toEqual(["finished", "finished"]);
    await untilIdle(child);
    expect((await askInTurn(parent, ["startTurn", "p/child", "hello"]))[0]).toMatchObject({
      value: { text: "You said: hello" },
    });
    await until("the completion is given up", async () => (await hungIn(idle)).givenUp === 1);
    expect(await restarts(troupe)).toEqual({ workers: [0], plugins: [1] });
    await nothingLost(troupe);
  });

  describe.each(["worker", "inline"] as const)("of a plugin in the tier %s", (tier) => {
    test("the session worker that serves dies: whoever waits is told, and can ask again", async () => {
      const troupe = await startTroupe(asking(tier));
      const { parent, child } = await parentAndChild(troupe);
      await child.turn("stored");
      const worker = await workerOf(troupe, child);
      const turn = turnThatAsks(
        parent,
        ["@atOnce", ["startTurn", "p/child", HANG], ["snapshotCurrent"]],
        ["readMessages", "p/child"],
        ["@stream", "p/child", "again"],
      );
      await untilRunning(child);
      await troupe.kill({ sessionWorker: worker });
      const [lost, messages, again] = firstToolValue(await turn) as unknown[];
      expect(lost).toMatchObject({ value: [{ error: "worker_lost" }, { value: {} }] });
      expect(valueIn<unknown[]>(messages as never)).toHaveLength(2);
      expect(again).toMatchObject({ value: { text: "You said: again" } });
      await nothingLost(troupe);
    });

    test("a stream whose session worker dies ends, and its result is the loss", async () => {
      const troupe = await startTroupe(asking(tier));
      const { parent, child } = await parentAndChild(troupe);
      const worker = await workerOf(troupe, child);
      const turn = turnThatAsks(parent, ["@stream", "p/child", HANG], ["awaitTurn", "p/child#1"]);
      await untilRunning(child);
      await troupe.kill({ sessionWorker: worker });
      expect(firstToolValue(await turn)).toEqual([{ error: "worker_lost" }, { error: "turn_unknown" }]);
    });

    test("the asking session's own worker dies: its turn is refused; what it started goes on and is still its own", async () => {
      const troupe = await startTroupe(asking(tier));
      const { parent, child } = await parentAndChild(troupe);
      const worker = await workerOf(troupe, parent);
      const turn = turnThatAsks(parent, ["@start", "p/child", { text: HANG, turnId: "mine" }], ["@never"]);
      await untilRunning(child);
      const refused = refusalOf(turn);
      await troupe.kill({ sessionWorker: worker });
      expect((await refused).code).toBe("worker_lost");
      expect((await child.view()).running).not.toBeNull();
      const answers = await askInTurn(
        parent,
        ["cancelTurn", "mine"],
        ["awaitTurn", "mine"],
        ["snapshotSession", "p/child"],
      );
      expect(answers).toMatchObject([
        {},
        { value: { outcome: { reason: "cancelled" } } },
        { value: { running: false, parentSessionId: "p" } },
      ]);
      await nothingLost(troupe);
    });

    test("the hook that waits is too late: its kind's policy decides, and what it waited for is given up", async () => {
      const options = {
        when: { promptContributor: "complete", turnContextTransform: "start" },
        promptContributor: [direct("hangs")],
        turnContextTransform: [["startTurn", "p/child", HANG]],
      };
      const troupe = await startTroupe(
        asking(tier, {
          sessionWorkers: 1,
          plugins: [{ module: plugin("asks-host-in-hooks"), options, tier, deadlineMs: 300 }],
        }),
      );
      const { parent, child } = await parentAndChild(troupe);
      expect(await parent.turn("complete")).toMatchObject({
        outcome: { type: "stopped", reason: "runtime_error" },
        issues: [{ code: "plugin_prompt", message: expect.stringContaining("within 300 ms") }],
      });
      await until("the completion is given up", async () => (await hungIn(parent)).givenUp === 1);
      const refusal = await refusalOf(parent.turn("start"));
      expect([refusal.code, refusal.cause]).toMatchObject(["context_prepare_turn", { code: "hook_timeout" }]);
      // The child's turn was cancelled: the next one of it runs.
      expect((await child.turn("hi")).turnIndex).toBe(2);
      expect((await parent.turn("go on")).outcome.type).toBe("finished");
      expect(await restarts(troupe)).toEqual({ workers: [0], plugins: [0] });
      await nothingLost(troupe);
    });

    test("the runtime closes: every wait ends, the threads end, and nothing is left", async () => {
      const path = fixture("programs/closes-in-calls.mjs").pathname;
      const program = spawn(process.execPath, ["--unhandled-rejections=strict", path, tier], {
        stdio: ["ignore", "pipe", "pipe"],
      });
      let stdout = "";
      let stderr = "";
      program.stdout.on("data", (chunk) => (stdout += chunk));
      program.stderr.on("data", (chunk) => (stderr += chunk));
      const [code] = await once(program, "close");
      expect({ code, stderr }).toEqual({ code: 0, stderr: "" });
      expect(JSON.parse(stdout)).toEqual({ ends: ["string", "closed"], left: [] });
    });
  });
});
