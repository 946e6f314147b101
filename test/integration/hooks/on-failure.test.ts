import {
  createTroupe,
  type OnFailure,
  type PluginEntry,
  type Session,
  type Troupe,
  type TroupeOptions,
  type TurnResult,
} from "troupe";
import { HOOK_KINDS, type HookName } from "troupe/plugin";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import {
  EMPTY_OBJECT,
  firstToolValue,
  fixture,
  RESIDENT,
  refusalOf,
  registers,
  remembering,
} from "../../support/runtime.js";

const ID = "test.first";
const NAMES = Object.keys(HOOK_KINDS) as HookName[];
/** Hooks of a turn; the others are asked when a session is opened, configured or compacted. */
const OUTSIDE: readonly HookName[] = [
  "sessionRestored",
  "sessionConfigMutator",
  "sessionConfigChanged",
  "contextCompactor",
];
const IN_TURN = NAMES.filter((name) => !OUTSIDE.includes(name));
/** Told of what is stored: nothing is left that could fail. */
const TOO_LATE: readonly HookName[] = ["turnPersisted", "sessionConfigChanged"];
/** A step with a tool call, then one with prose that was not streamed, so that every kind of hook is asked. */
const INPUT = "call dig\nwhole done";
const STREAMED = "call dig\nsay do|ne";

/** A runtime whose one plugin has this policy, and sessions of it with one hook that throws "boom". */
function troupeWith(onFailure: OnFailure | undefined, more: TroupeOptions = {}) {
  let troupe: Troupe;
  beforeAll(async () => {
    troupe = await createTroupe({
      sessionWorkers: 1,
      plugins: [remembering(registers(ID), onFailure === undefined ? {} : { onFailure })],
      tools: { dig: { description: "d", inputSchema: EMPTY_OBJECT, execute: () => "dug" } },
      model: fixture("models/obeys.mjs"),
      drainMs: 500,
      ...more,
    });
  });
  afterAll(() => troupe.close());
  return {
    failing: (name: HookName, ...more: object[]): Promise<Session> =>
      troupe.session(name, { pluginOptions: { [ID]: { hooks: [{ name, fails: "boom" }, ...more] } as never } }),
  };
}

const inputFor = (name: HookName) => (name === "assistantStream" ? STREAMED : INPUT);
const issuesOf = ({ issues }: Pick<TurnResult, "issues">) => issues.map(({ code, pluginId }) => [code, pluginId]);

describe("the policy skip", () => {
  const { failing } = troupeWith("skip");
  const LIFECYCLE: readonly HookName[] = ["streamFinished", "turnFinalized", "turnPersisted"];

  test.each(IN_TURN)("%s that fails counts as having answered nothing, and its turn says so", async (name) => {
    const session = await failing(name);
    const result = await session.turn(inputFor(name));
    expect([result.outcome, firstToolValue(result)]).toEqual([{ type: "finished", text: "done" }, "dug"]);
    // Lifecycle hooks are passed over anyway: one issue for each of the two model calls.
    const times = name === "streamFinished" ? 2 : 1;
    const code = LIFECYCLE.includes(name) ? "lifecycle_hook_failed" : "hook_failed";
    expect(issuesOf(result)).toEqual(Array.from({ length: times }, () => [code, ID]));
    expect(result.issues[0]).toMatchObject({ kind: "plugin", message: `${name}: boom` });
  });

  test("an answer that cannot be read is passed over like a hook that throws", async () => {
    const session = await failing("sessionConfigChanged", { name: "beforeTurn", gives: 42 });
    const result = await session.turn(INPUT);
    expect(issuesOf(result)).toEqual([["invalid_hook_answer", ID]]);
  });

  test("a compactor that fails is passed over for the next one", async () => {
    const initialNodes = [{ kind: "message", message: { role: "user", text: "In short." } }];
    const session = await failing("contextCompactor", { name: "contextCompactor", gives: { initialNodes } });
    await session.turn(INPUT);
    expect(await session.compact()).toBe(true);
    // Not forgotten with what the session has in memory.
    await session.park();
    expect(issuesOf(await session.turn(INPUT))).toEqual([["hook_failed", ID]]);
    expect(issuesOf(await session.turn(INPUT))).toEqual([]);
  });

  test("a config mutator that fails is an issue of the change", async () => {
    const session = await failing("sessionConfigMutator");
    const { changed, issues } = await session.configure({ instructions: "Be brief." });
    expect([changed, ...issuesOf({ issues })]).toEqual([true, ["config_mutator_failed", ID]]);
  });
});

describe("the policy fail_turn", () => {
  const { failing } = troupeWith("fail_turn");
  /** Before these nothing has happened, behind these nothing may be kept: the turn is refused. */
  const REFUSED: Partial<Record<HookName, string>> = {
    turnContextTransform: "context_prepare_turn",
    beforeTurn: "plugin_prepare_turn",
    afterTurn: "plugin_finalize_turn",
    turnFinalized: "plugin_finalize_turn",
  };
  const STOPPED: Partial<Record<HookName, readonly [reason: string, code: string]>> = {
    toolCatalogContributor: ["runtime_error", "plugin_prompt"],
    promptContributor: ["runtime_error", "plugin_prompt"],
    assistantStream: ["provider_error", "plugin_assistant_stream"],
    assistantResponse: ["provider_error", "plugin_assistant_response"],
    proseProjector: ["provider_error", "plugin_prose_projector"],
    streamFinished: ["runtime_error", "hook_failed"],
    beforeToolCall: ["plugin_abort", "hook_failed"],
    afterToolCall: ["plugin_abort", "hook_failed"],
    toolResultProjector: ["runtime_error", "hook_failed"],
    checkpoint: ["runtime_error", "plugin_checkpoint"],
  };

  test("every hook of a turn that can end it is in the tables below", () => {
    const named = [...Object.keys(REFUSED), ...Object.keys(STOPPED), "turnPersisted"];
    expect(named.sort()).toEqual([...IN_TURN].sort());
  });

  test.each(Object.entries(REFUSED) as [HookName, string][])(
    "%s that fails refuses the turn with %s, and nothing of it is stored",
    async (name, code) => {
      const session = await failing(name);
      const error = await refusalOf(session.turn(INPUT));
      expect([error.code, error.message.endsWith("boom")]).toEqual([code, true]);
      expect(await session.info()).toMatchObject({ turns: 0 });
    },
  );

  test.each(Object.entries(STOPPED) as [HookName, [string, string]][])(
    "%s that fails stops the turn with its error: %s",
    async (name, [reason, code]) => {
      const session = await failing(name);
      const result = await session.turn(inputFor(name));
      expect(result.outcome).toMatchObject({ type: "stopped", reason, code });
      expect((result.outcome as { message: string }).message).toContain("boom");
      expect(issuesOf(result).map(([code]) => code)).toEqual([code]);
    },
  );

  test("turnPersisted that fails is an issue of the turn, which is stored by then", async () => {
    const result = await (await failing("turnPersisted")).turn(INPUT);
    expect([result.outcome.type, ...issuesOf(result)]).toEqual(["finished", ["lifecycle_hook_failed", ID]]);
  });

  test("a beforeToolCall that fails ends its turn before any other call of the same step is made", async () => {
    const session = await failing("beforeToolCall", { name: "beforeToolCall", fails: "boom too" });
    const result = await session.turn(INPUT);
    expect(result.toolCalls.map(({ output }) => output.status)).toEqual(["failure"]);
    expect(result.modelCalls).toBe(1);
  });

  test("a config mutator that fails refuses the change", async () => {
    const session = await failing("sessionConfigMutator");
    const error = await refusalOf(session.configure({ instructions: "Be brief." }));
    expect(error.message).toBe("boom");
    expect(await session.info()).toMatchObject({ revision: 0 });
  });

  test("a sessionConfigChanged that fails is an issue of the change, which is stored by then", async () => {
    const session = await failing("sessionConfigChanged");
    const { changed, issues } = await session.configure({ instructions: "Be brief." });
    expect([changed, ...issuesOf({ issues })]).toEqual([true, ["lifecycle_hook_failed", ID]]);
  });

  test("a sessionRestored that fails keeps its session from being opened", async () => {
    expect((await refusalOf(failing("sessionRestored").then((session) => session.turn("hi")))).code).toBe(
      "session_restore_failed",
    );
  });

  test("a compactor that fails refuses the compaction", async () => {
    const session = await failing("contextCompactor");
    expect((await refusalOf(session.compact())).code).toBe("plugin_compact");
  });
});

describe("the policy skip, for a session that stays in memory", () => {
  const { failing } = troupeWith("skip", RESIDENT);

  test("a sessionRestored hook that fails does not keep its session from being opened, and the first turn says so", async () => {
    const session = await failing("sessionRestored");
    expect(issuesOf(await session.turn(INPUT))).toEqual([["hook_failed", ID]]);
    expect(issuesOf(await session.turn(INPUT))).toEqual([]);
  });
});

describe("policies by hook", () => {
  const { failing } = troupeWith({ beforeToolCall: "deny", afterToolCall: "deny", promptContributor: "skip" });

  test.each([
    ["beforeToolCall", "before_tool_call_failed"],
    ["afterToolCall", "after_tool_call_failed"],
  ] as const)("%s that fails under deny fails its call with %s, and the turn goes on", async (name, code) => {
    const result = await (await failing(name)).turn(INPUT);
    expect([result.outcome.type, firstToolValue(result), issuesOf(result)]).toEqual(["finished", code, [[code, ID]]]);
  });

  test("a hook with a policy of its own follows it", async () => {
    const result = await (await failing("promptContributor")).turn(INPUT);
    expect([result.outcome.type, issuesOf(result)]).toEqual(["finished", [["hook_failed", ID]]]);
  });

  test("a hook without a policy of its own does what its kind does by itself", async () => {
    expect((await refusalOf((await failing("beforeTurn")).turn(INPUT))).code).toBe("plugin_prepare_turn");
  });
});

describe("policies by plugin", () => {
  const SECOND = "test.second";
  let troupe: Troupe;
  beforeAll(async () => {
    troupe = await createTroupe({
      sessionWorkers: 1,
      plugins: [
        remembering(registers(ID), { onFailure: "skip" }),
        remembering(registers(SECOND), { onFailure: { beforeToolCall: "deny", promptContributor: "fail_turn" } }),
      ],
      tools: { dig: { description: "d", inputSchema: EMPTY_OBJECT, execute: () => "dug" } },
      model: fixture("models/obeys.mjs"),
      drainMs: 500,
    });
  });
  afterAll(() => troupe.close());
  const failing = (pluginId: string, name: HookName) =>
    troupe.session(`${pluginId} ${name}`, {
      pluginOptions: { [pluginId]: { hooks: [{ name, fails: "boom" }] } as never },
    });

  test.each([
    [ID, "beforeToolCall", "finished", "dug", "hook_failed"],
    [SECOND, "beforeToolCall", "finished", "before_tool_call_failed", "before_tool_call_failed"],
    [ID, "promptContributor", "finished", "dug", "hook_failed"],
    [SECOND, "promptContributor", "stopped", undefined, "plugin_prompt"],
  ] as const)(
    "of two plugins that differ in theirs, %s follows its own when its %s fails",
    async (pluginId, name, end, tool, issue) => {
      const result = await (await failing(pluginId, name)).turn(INPUT);
      expect([result.outcome.type, firstToolValue(result)]).toEqual([end, tool]);
      expect(issuesOf(result)).toEqual([[issue, pluginId]]);
    },
  );
});

describe("a policy that cannot be", () => {
  const refused = async (onFailure: unknown) => {
    const entry = { module: registers(ID), onFailure } as PluginEntry;
    const { code, message } = await refusalOf(createTroupe({ plugins: [entry] }));
    expect(code).toBe("invalid_options");
    return message;
  };

  test.each(NAMES.filter((name) => name !== "beforeToolCall" && name !== "afterToolCall"))(
    "deny is refused for %s, because only tool calls can be denied",
    async (name) => {
      expect(await refused({ [name]: "deny" })).toBe(
        `plugins[0].onFailure.${name} cannot be "deny": only a tool call can be denied, so it is for beforeToolCall and afterToolCall; use "fail_turn" or "skip" for other hooks.`,
      );
    },
  );

  test("deny for all hooks of a plugin is refused and names the hooks it is for", async () => {
    expect(await refused("deny")).toContain("beforeToolCall and afterToolCall");
  });

  test.each(TOO_LATE)("fail_turn is refused for %s, which is told of what is stored", async (name) => {
    expect(await refused({ [name]: "fail_turn" })).toContain(`onFailure.${name} can only be "skip"`);
  });

  test.each([
    ["beforeToolcall", "beforeToolCall"],
    ["before_tool_call", "beforeToolCall"],
    ["afterTurns", "afterTurn"],
    ["toolResultProjecter", "toolResultProjector"],
  ])("the unknown hook %s is refused with the question whether %s was meant", async (name, meant) => {
    expect(await refused({ [name]: "skip" })).toBe(
      `plugins[0].onFailure has no hook "${name}". Did you mean "${meant}"?`,
    );
  });

  test("a hook name that resembles none is refused with the names there are", async () => {
    expect(await refused({ xyz: "skip" })).toContain(NAMES.join(", "));
  });

  test("a policy nobody knows is refused with those there are", async () => {
    expect(await refused("ignore")).toBe('plugins[0].onFailure must be "fail_turn", "deny" or "skip", not ignore.');
  });

  test("a list is refused as a policy", async () => {
    expect(await refused(["skip"])).toContain("an object of policies by hook name");
  });
});
