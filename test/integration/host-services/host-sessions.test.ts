import { type Activity, createTroupe, type Observed, type Session, type Troupe, type Turn } from "troupe";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { DEFAULT_CONFIG } from "../../../src/kernel/index.js";
import { only, untimed } from "../../support/activities.js";
import {
  type Answer,
  ask,
  askInTurn,
  asking,
  askOne,
  type Call,
  spentBeside,
  told,
  turnThatAsks,
  usage,
  valueIn,
} from "../../support/asking.js";
import { collect, openSessions, startTroupe, tempFolder } from "../../support/runtime.js";

const create = (request: object): Call => ["createSession", request];
const message = (text: string) => ({ kind: "message", message: { role: "user", text } });

/** What the model reads before an input. */
const conversationOf = async (session: Session) => {
  const { text } = await session.turn(told({ say: "@conversation" }));
  return (JSON.parse(text) as [string, string][]).slice(0, -1);
};

const untilModelCalled = async (turn: Turn) => {
  for await (const { type } of turn) if (type === "model_call_started") return;
};

describe.each(["worker", "inline"] as const)("sessions a plugin in the tier %s", (tier) => {
  let troupe: Troupe;
  beforeAll(async () => {
    troupe = await createTroupe(asking(tier));
  });
  afterAll(() => troupe.close());

  describe("creates", () => {
    test("begin empty, as children of the session that asks, with its configuration and copies of its plugins' state", async () => {
      const parent = await troupe.session("a");
      await parent.configure({ instructions: "Be kind.", metadata: { owner: "me" } });
      await parent.command("host.note", { note: "copied" });
      await parent.turn("not for the child");
      const handle = valueIn<{ sessionId: string }>(await askOne(parent, ...create({})));
      expect(handle).toEqual({
        sessionId: expect.stringMatching(/^a\/[0-9a-f]{8}$/),
        parentSessionId: "a",
        config: { ...DEFAULT_CONFIG, instructions: "Be kind.", metadata: { owner: "me" } },
      });
      const child = await troupe.session(handle.sessionId);
      expect(await child.view()).toMatchObject({
        parentSessionId: "a",
        turnIndex: 0,
        messageCount: 0,
        usage: usage(0, 0),
      });
      expect(await child.query("host.asked")).toEqual({ note: "copied" });
      await child.command("host.note", { note: "its own" });
      expect(await parent.query("host.asked")).toEqual({ note: "copied" });
      expect(await conversationOf(child)).toEqual([]);
    });

    test("begin where the current session, or another it may see, was stored last", async () => {
      const parent = await troupe.session("b");
      await parent.turn("one");
      const [, made] = await askInTurn(
        parent,
        ["appendSessionNodes", "b", { nodes: [message("in the turn")] }],
        create({ sessionId: "b/current", start: { kind: "current_session" }, initialNodes: [message("extra")] }),
      );
      expect(made).toMatchObject({ value: { sessionId: "b/current", parentSessionId: "b" } });
      const current = await troupe.session("b/current");
      // The running turn is not stored yet; what it appended is.
      expect(await current.view()).toMatchObject({ turnIndex: 1, messageCount: 4, revision: 1 });
      const stored = [
        ["user", "one"],
        ["assistant", "You said: one"],
        ["user", "in the turn"],
        ["user", "extra"],
      ];
      expect(await conversationOf(current)).toEqual(stored);
      const [, existing, hidden, unknown] = await ask(
        parent,
        ["snapshotSession", "b/current"],
        create({ sessionId: "b/existing", start: { kind: "existing_session", sessionId: "b/current" } }),
        create({ sessionId: "b/never", start: { kind: "existing_session", sessionId: "a" } }),
        create({ sessionId: "b/never", start: { kind: "snapshot" } }),
      );
      // Made from its sibling, but of the session that asked for it.
      expect(existing).toMatchObject({ value: { parentSessionId: "b" } });
      expect((await conversationOf(await troupe.session("b/existing"))).slice(0, 4)).toEqual(stored);
      expect([hidden, unknown]).toEqual([{ error: "session_not_visible" }, { error: "invalid_session_request" }]);
      const [origin] = await ask(parent, ["readMessages", "b/current", { from: 3, to: 4 }]);
      expect(origin).toMatchObject({ value: [{ origin: { kind: "creator", sessionId: "b" } }] });
    });

    test("have fresh plugins, another configuration, fewer tools or no parent when that is asked for", async () => {
      const parent = await troupe.session("c");
      await parent.command("host.note", { note: "not for the child" });
      await ask(parent, ["setToolMembership", "c", ["weather"], false]);
      const answers = await ask(
        parent,
        create({ sessionId: "c/fresh", pluginSource: "fresh" }),
        create({ sessionId: "c/fork", config: { maxSteps: 3 } }),
        create({ sessionId: "c/hidden", pluginSource: "fresh", authority: { hiddenTools: ["weather"] } }),
        create({ sessionId: "c/overlay", pluginSource: "fresh", catalog: { remove: ["ask_host"] } }),
        create({ sessionId: "c/root", relation: "root", start: { kind: "current_session" } }),
      );
      expect(answers.map(({ value }) => (value as { parentSessionId: string | null }).parentSessionId)).toEqual([
        "c",
        "c",
        "c",
        "c",
        null,
      ]);
      const seen = async (id: string) => {
        const session = await troupe.session(id);
        const { tools } = await session.surface();
        return [
          await session.query("host.asked"),
          tools.map(({ name }) => name),
          (await session.view()).config.maxSteps,
        ];
      };
      expect(await seen("c/fresh")).toEqual([{}, ["ask_host", "weather"], 32]);
      expect(await seen("c/fork")).toEqual([{ note: "not for the child" }, ["ask_host"], 3]);
      expect(await seen("c/hidden")).toEqual([{}, ["ask_host"], 32]);
      expect(await seen("c/overlay")).toEqual([{}, ["weather"], 32]);
      expect(await seen("c/root")).toEqual([{ note: "not for the child" }, ["ask_host"], 32]);
      // What is hidden from a session is hidden from what it makes, also from a root.
      const hidden = await troupe.session("c/hidden");
      await ask(hidden, create({ sessionId: "c/deeper", relation: "root", pluginSource: "fresh" }));
      expect(await seen("c/deeper")).toEqual([{}, ["ask_host"], 32]);
    });

    // §15.73
    test("need an id of their own: one that exists is refused, resident or stored, and so is the session itself", async () => {
      const parent = await troupe.session("d");
      await parent.turn("hi");
      const stored = await troupe.session("d/stored");
      await stored.turn("hi");
      await stored.close();
      await troupe.session("d/resident");
      const exists = { error: "session_exists" };
      expect(
        await askInTurn(
          parent,
          create({ sessionId: "d" }),
          create({ sessionId: "d/stored" }),
          create({ sessionId: "d/resident" }),
          ["@atOnce", create({ sessionId: "d/twice" }), create({ sessionId: "d/twice" })],
        ),
      ).toEqual([
        exists,
        exists,
        exists,
        { value: [{ value: expect.objectContaining({ sessionId: "d/twice" }) }, exists] },
      ]);
    });

    test("are not made at all when something is wrong with the request", async () => {
      const parent = await troupe.session("e");
      const invalid: readonly object[] = [
        { relation: "sibling" },
        { pluginSource: "new" },
        { start: { kind: "existing_session" } },
        { firstTurnInput: 7 },
        { usageSource: " " },
        { authority: { hiddenTools: "weather" } },
        { authority: { withoutPlugins: [1] } },
        { authority: { tools: "all" } },
        { catalog: {} },
        { config: "loud" },
      ];
      const answers = await ask(parent, ...invalid.map((request) => create({ ...request, sessionId: "e/child" })));
      expect(answers).toEqual(invalid.map(() => ({ error: "invalid_session_request" })));
      expect(
        await ask(
          parent,
          create({ sessionId: "e/child", config: { volume: 11 } }),
          create({ sessionId: "e/child", initialNodes: [{ kind: "message" }] }),
          create({ sessionId: "e\u0000child" }),
          create({ sessionId: "e/child", authority: { withoutPlugins: ["test.asks-host"] } }),
          create({ sessionId: "e/child" }),
        ),
      ).toEqual([
        { error: "invalid_config" },
        { error: "invalid_nodes" },
        { error: "invalid_session_id" },
        { error: "plugin_not_droppable" },
        { value: expect.objectContaining({ sessionId: "e/child" }) },
      ]);
    });

    test("keep what was left for their first turn until somebody takes it, once", async () => {
      const parent = await troupe.session("f");
      const left = create({ sessionId: "f/child", firstTurnInput: "Begin!" });
      const take: Call = ["takeFirstTurnInput", "f/child"];
      expect((await askInTurn(parent, left, ["@atOnce", take, take], take)).slice(1)).toEqual([
        { value: [{ value: "Begin!" }, { value: null }] },
        { value: null },
      ]);
      expect(await askOne(parent, ...create({ sessionId: "f/own", firstTurnInput: "Go!" }))).toMatchObject({
        value: {},
      });
      const own = await troupe.session("f/own");
      await own.close();
      // The session itself, in its own turn, after it was closed and opened again.
      const again = await troupe.session("f/own");
      expect(await askInTurn(again, ["takeFirstTurnInput", "f/own"], ["takeFirstTurnInput", "f/own"])).toEqual([
        { value: "Go!" },
        { value: null },
      ]);
      await again.close();
      expect(await askOne(await troupe.session("f/own"), "takeFirstTurnInput", "f/own")).toEqual({ value: null });
      // Nobody left anything.
      expect(await askOne(parent, "takeFirstTurnInput", "f")).toEqual({ value: null });
    });
  });

  // §15.73
  test("closes are stored and freed; refused are its own, one with a turn running, and fine is one nobody knows", async () => {
    const parent = await troupe.session("close");
    await ask(parent, create({ sessionId: "close/child" }));
    const child = await troupe.session("close/child");
    await child.command("host.note", { note: "kept" });
    const running = child.turn(told({ hang: true }));
    await untilModelCalled(running);
    const close = (id: string): Call => ["closeSession", id];
    const before = await openSessions(troupe);
    expect(await askInTurn(parent, close("close"), close("close/child"), close("no such session"))).toEqual([
      { error: "session_busy" },
      { error: "session_busy" },
      {},
    ]);
    running.cancel();
    await running;
    expect(await askInTurn(parent, close("close/child"), close("close/child"))).toEqual([{}, {}]);
    expect(await openSessions(troupe)).toBe(before - 1);
    expect(await child.query("host.asked")).toEqual({ note: "kept" });
  });

  describe("runs turns in", () => {
    const childOf = async (parentId: string, request: object = {}) => {
      const parent = await troupe.session(parentId);
      await ask(parent, create({ sessionId: `${parentId}/child`, ...request }));
      return { parent, childId: `${parentId}/child`, child: await troupe.session(`${parentId}/child`) };
    };

    test("give their result to whoever started them, from a turn and between turns", async () => {
      const { parent, childId } = await childOf("t1");
      const [inTurn] = await askInTurn(parent, ["startTurn", childId, "hello"]);
      expect(inTurn).toMatchObject({
        value: { sessionId: childId, text: "You said: hello", turnIndex: 1, outcome: { type: "finished" } },
      });
      expect(await askOne(parent, "startTurn", childId, { text: "again" })).toMatchObject({ value: { turnIndex: 2 } });
      const result = await askOne(parent, "startTurn", childId, told({ call: "weather" }, { say: "It is sunny." }));
      expect(result).toMatchObject({ value: { text: "It is sunny.", toolCalls: [{ toolName: "weather" }] } });
    });

    test("are streamed to their end, and can be awaited beside it, once", async () => {
      const { parent, childId } = await childOf("t2");
      const [streamed, unknown] = await askInTurn(
        parent,
        ["@stream", childId, { text: "hello", turnId: "first" }],
        ["awaitTurn", "first"],
      );
      expect(streamed).toEqual({
        value: {
          turnId: "first",
          text: "You said: hello",
          types: ["turn_started", "model_call_started", "text_delta", "model_call_finished", "turn_finished"],
        },
      });
      expect(unknown).toEqual({ error: "turn_unknown" });
      // Not streamed to the end by whoever started it: the result can still be fetched, in another call.
      const started = await askOne(parent, "@start", childId, { text: "later", turnId: "second" });
      expect(started).toEqual({ value: "second" });
      expect(
        await askInTurn(parent, ["awaitTurn", "second"], ["awaitTurn", "second"], ["cancelTurn", "second"]),
      ).toMatchObject([{ value: { text: "You said: later" } }, { error: "turn_unknown" }, { error: "turn_unknown" }]);
    });

    // §15.73 §15.78
    test("are one at a time in each session, under an id that is new and not blank, and never the own", async () => {
      const { parent, childId } = await childOf("t3");
      await ask(parent, create({ sessionId: "t3/other" }));
      const hang = told({ hang: true });
      const answers = await askInTurn(
        parent,
        ["@start", childId, { text: hang, turnId: "one" }],
        ["startTurn", childId, "overlapping"],
        ["startTurn", "t3/other", { text: "hi", turnId: "one" }],
        ["startTurn", "t3/other", { text: "hi", turnId: "  " }],
        ["startTurn", "t3/other", { text: "hi", turnId: 7 }],
        ["startTurn", "t3/other", {}],
        ["@startLong", "t3/other", 4 * 1024 * 1024 + 1],
        ["startTurn", "t3", "to myself"],
        ["closeSession", childId],
        ["cancelTurn", "one"],
        ["awaitTurn", "one"],
        // Over: the name is free, and so is the session.
        ["startTurn", childId, { text: "hi", turnId: "one" }],
        ["closeSession", childId],
      );
      expect(answers.map(({ error }) => error)).toEqual([
        undefined,
        "turn_running",
        "turn_exists",
        "invalid_host_call",
        "invalid_host_call",
        "invalid_host_call",
        "invalid_turn_input",
        "turn_running",
        "session_busy",
        undefined,
        undefined,
        undefined,
        undefined,
      ]);
      expect(answers[10]).toMatchObject({ value: { outcome: { type: "stopped", reason: "cancelled" } } });
      expect(answers[11]).toMatchObject({ value: { text: "You said: hi" } });
    });

    test("belong to the session that started them: another one cannot await, cancel or take over their name", async () => {
      const { parent, childId } = await childOf("t4");
      const { parent: other, childId: otherChild } = await childOf("t4b");
      await ask(parent, ["@start", childId, { text: told({ hang: true }), turnId: "same" }]);
      expect(await ask(other, ["cancelTurn", "same"], ["awaitTurn", "same"])).toEqual([
        { error: "turn_unknown" },
        { error: "turn_unknown" },
      ]);
      expect(await askOne(other, "@stream", otherChild, { text: "mine", turnId: "same" })).toMatchObject({
        value: { text: "You said: mine" },
      });
      await ask(parent, ["cancelTurn", "same"]);
      expect(await askOne(parent, "awaitTurn", "same")).toMatchObject({ value: { sessionId: childId } });
    });

    test("are seen in their starter's stream by whoever asked for children, and by nobody else", async () => {
      const { parent, childId } = await childOf("t6");
      const watch = async (options: Parameters<typeof parent.observe>[0]) => {
        const seen: Observed[] = [];
        for await (const observed of parent.observe(options)) {
          seen.push(observed);
          if (observed.event.type === "committed") return seen;
        }
        return seen;
      };
      const [withChildren, without] = [watch({ children: true }), watch({})];
      await parent.view();
      await turnThatAsks(parent, ["startTurn", childId, told({ say: "sunny" })]);
      const ofChild = ({ event }: Observed) => event.type === "activity" && event.child !== undefined;
      const events = (await withChildren).filter(ofChild).map(({ event }) => event);
      expect(events[0]).toMatchObject({ turnId: "t1", activity: { type: "turn_started" } });
      expect(events.at(-1)).toMatchObject({
        turnId: "t1",
        activity: { type: "turn_finished", result: { text: "sunny" } },
      });
      for (const event of events) expect(event).toMatchObject({ child: { sessionId: childId, depth: 1 } });
      expect((await without).filter(ofChild)).toEqual([]);
    });

    // §15.74
    test("have what they use told to their starter as they go, under the child's label, and counted once", async () => {
      const { parent, childId } = await childOf("t5", { usageSource: "research" });
      const activities = await collect(
        turnThatAsks(parent, ["startTurn", childId, told({ call: "weather" }, { say: "sunny" })], ["snapshotCurrent"]),
      );
      const told20 = untimed(only(activities, "usage"));
      expect(told20).toEqual([
        { type: "usage", source: "research", model: "told", usage: usage(10, 5) },
        { type: "usage", source: "research", model: "told", usage: usage(10, 5) },
      ]);
      // While the parent's turn still runs.
      const finished = activities.findIndex(({ type }) => type === "tool_call_finished");
      expect(activities.findLastIndex(({ type }) => type === "usage")).toBeLessThan(finished);
      const { output } = activities[finished] as Extract<Activity, { type: "tool_call_finished" }>;
      const research = (...spent: [number, number]) => ({ source: "research", model: "told", usage: usage(...spent) });
      const own = (...spent: [number, number]) => ({ source: "turn", model: "told", usage: usage(...spent) });
      expect(output).toMatchObject({ value: [{}, { value: { ledger: [research(20, 10), own(10, 5)] } }] });
      expect(await parent.view()).toMatchObject({ ledger: [own(20, 10), research(20, 10)], usage: usage(20, 10) });
      // Between turns it is stored at once.
      const { revision } = await parent.view();
      await ask(parent, ["@stream", childId, "more"]);
      const ledger = [own(20, 10), research(30, 15)];
      expect(await parent.view()).toMatchObject({ ledger, revision: revision + 1 });
      await parent.close();
      expect((await (await troupe.session("t5")).view()).ledger).toEqual(ledger);
    });

    test("count as `child` when the child has no label, also when nobody awaits them", async () => {
      const { parent, childId, child } = await childOf("t6c");
      await askInTurn(parent, ["@start", childId, "hello"]);
      // Behind the child's turn in its mailbox; and its usage was told before that turn was.
      expect((await child.turn("behind it")).turnIndex).toBe(2);
      await parent.turn("and one more");
      expect(spentBeside(await parent.view())).toEqual({ child: usage(10, 5) });
    });

    test("end when the turn that waits for them is cancelled; what they used is still counted", async () => {
      const { parent, childId, child } = await childOf("t7");
      const turn = turnThatAsks(parent, ["startTurn", childId, told({ call: "weather" }, { hang: true })]);
      for await (const { type } of turn) if (type === "usage") break;
      turn.cancel();
      expect((await turn).outcome).toMatchObject({ reason: "cancelled" });
      // The child is free again, without anybody having cancelled its turn by name.
      expect((await child.turn("hi")).outcome.type).toBe("finished");
      expect(await child.view()).toMatchObject({ turnIndex: 2 });
      expect(spentBeside(await parent.view())).toEqual({ child: usage(10, 5) });
    });

    test("can themselves have sessions that run turns", async () => {
      const { parent, childId } = await childOf("t8");
      const deepest = ["startTurn", "t8/child/child", "deep"];
      const calls = [create({ sessionId: "t8/child/child" }), deepest];
      const [answer] = await askInTurn(parent, ["startTurn", childId, told({ call: "ask_host", args: { calls } })]);
      const { toolCalls } = valueIn<{ toolCalls: { output: { value: Answer[] } }[] }>(answer);
      expect(toolCalls[0]?.output.value[1]).toMatchObject({
        value: { text: "You said: deep", sessionId: "t8/child/child" },
      });
    });
  });

  test("come back with the store: parents, what was left for the first turn, ledgers and visibility", async () => {
    const path = await tempFolder();
    const first = await createTroupe(asking(tier, { store: { path } }));
    const parent = await first.session("p");
    await ask(
      parent,
      create({ sessionId: "p/child", firstTurnInput: "Begin!", usageSource: "label" }),
      create({ sessionId: "p/taken", firstTurnInput: "Gone." }),
      ["takeFirstTurnInput", "p/taken"],
      ["startTurn", "p/child", "hello"],
    );
    await first.close();
    const second = await startTroupe(asking(tier, { store: { path } }));
    const again = await second.session("p");
    expect(spentBeside(await again.view())).toEqual({ label: usage(10, 5) });
    expect(
      await ask(
        again,
        ["takeFirstTurnInput", "p/child"],
        ["takeFirstTurnInput", "p/child"],
        ["takeFirstTurnInput", "p/taken"],
        ["snapshotSession", "p/child"],
        create({ sessionId: "p/child" }),
      ),
    ).toEqual([
      { value: "Begin!" },
      { value: null },
      { value: null },
      { value: expect.objectContaining({ parentSessionId: "p", turnIndex: 1 }) },
      { error: "session_exists" },
    ]);
  });
});
