import fc from "fast-check";
import { describe, expect, test } from "vitest";
import {
  type AfterToolDirective,
  type BeforeToolDirective,
  composeAfterToolCall,
  composeBeforeToolCall,
  type Json,
  type Owned,
  type ToolOutput,
} from "../../src/kernel/index.js";

const deny = (code: string): BeforeToolDirective & AfterToolDirective => ({
  kind: "short_circuit_tool",
  output: { status: "failure", failure: { kind: "permission_denied", code, message: code } },
});
const succeed = (value: Json): BeforeToolDirective & AfterToolDirective => ({
  kind: "short_circuit_tool",
  output: { status: "success", value },
});
const abort = (code: string): BeforeToolDirective & AfterToolDirective => ({ kind: "abort_turn", code, message: code });
const replace = (args: Json): BeforeToolDirective => ({ kind: "replace_tool_args", args });
const emit = (name: string): BeforeToolDirective & AfterToolDirective => ({ kind: "emit_events", events: [{ name }] });

type Plugin<S, D> = readonly [id: string, hook: (subject: S) => readonly D[]];

const inspect = (...plugins: Plugin<Json, BeforeToolDirective>[]) => {
  const asked: [string, Json][] = [];
  const ask = (n: number, args: Json): Owned<BeforeToolDirective>[] => {
    const [pluginId, hook] = plugins[n] as (typeof plugins)[number];
    asked.push([pluginId, args]);
    return hook(args).map((value) => ({ pluginId, value }));
  };
  return composeBeforeToolCall("original", plugins.length, ask).then((verdict) => ({ ...verdict, asked }));
};

const review = (original: ToolOutput, ...plugins: Plugin<ToolOutput, AfterToolDirective>[]) =>
  composeAfterToolCall(original, plugins.length, async (n, output) => {
    const [pluginId, hook] = plugins[n] as (typeof plugins)[number];
    return hook(output).map((value) => ({ pluginId, value }));
  });

const code = (output: ToolOutput | undefined) => (output?.status === "failure" ? output.failure.code : output?.status);
const OK: ToolOutput = { status: "success", value: "original" };

describe("before a tool call", () => {
  test("a denial stands whether the success comes before or after it", async () => {
    expect(code((await inspect(["a", () => [deny("no")]], ["b", () => [succeed(1)]])).output)).toBe("no");
    expect(code((await inspect(["a", () => [succeed(1)]], ["b", () => [deny("no")]])).output)).toBe("no");
  });

  test("an abort beats a success and a denial in both orders", async () => {
    for (const other of [succeed(1), deny("no")]) {
      expect((await inspect(["a", () => [abort("stop")]], ["b", () => [other]])).terminal?.value.kind).toBe(
        "abort_turn",
      );
      expect((await inspect(["a", () => [other]], ["b", () => [abort("stop")]])).terminal?.value.kind).toBe(
        "abort_turn",
      );
    }
  });

  test("a denial displaced by an abort keeps its words; an abort that came first keeps its own", async () => {
    expect(code((await inspect(["a", () => [deny("no")]], ["b", () => [abort("stop")]])).output)).toBe("no");
    expect(code((await inspect(["a", () => [abort("stop")]], ["b", () => [deny("no")]])).output)).toBe("stop");
  });

  test("of equal denials the smaller plugin id wins, in either order of registration", async () => {
    expect(code((await inspect(["a", () => [deny("of a")]], ["b", () => [deny("of b")]])).output)).toBe("of a");
    expect(code((await inspect(["b", () => [deny("of b")]], ["a", () => [deny("of a")]])).output)).toBe("of a");
  });

  test("of one plugin's own equal denials the first wins, and it is not in conflict with itself", async () => {
    const verdict = await inspect(["a", () => [deny("first"), deny("second")]]);
    expect(code(verdict.output)).toBe("first");
    expect(verdict.conflicts).toEqual([]);
  });

  test("a conflict is told once, in the name of the later plugin", async () => {
    const { conflicts } = await inspect(["a", () => [deny("no")]], ["b", () => [succeed(1)]]);
    expect(conflicts).toEqual([
      {
        pluginId: "b",
        winner: { pluginId: "a", directive: "denied_short_circuit" },
        ignored: { pluginId: "b", directive: "successful_short_circuit" },
      },
    ]);
  });

  test("a replacement is seen by later hooks and inspected again by earlier ones", async () => {
    const { asked, args } = await inspect(["a", () => []], ["b", () => [replace("new")]], ["c", () => []]);
    expect(asked).toEqual([
      ["a", "original"],
      ["b", "original"],
      ["a", "new"],
      ["c", "new"],
    ]);
    expect(args).toBe("new");
  });

  test("an earlier hook denies what a later one put in", async () => {
    const guard: Plugin<Json, BeforeToolDirective> = ["a", (args) => (args === "secret" ? [deny("no secrets")] : [])];
    expect(code((await inspect(guard, ["b", () => [replace("secret")]])).output)).toBe("no secrets");
    expect(code((await inspect(["b", () => [replace("secret")]], guard)).output)).toBe("no secrets");
  });

  test("a second look repeats no side effect, takes no success and makes no conflict", async () => {
    const { effects, output, conflicts } = await inspect(
      ["a", (args) => (args === "new" ? [emit("again"), succeed("again")] : [emit("once")])],
      ["b", () => [replace("new")]],
    );
    expect(effects.map(({ value }) => value)).toEqual([emit("once")]);
    expect(output).toBeUndefined();
    expect(conflicts).toEqual([]);
  });

  test("two plugins that always replace are a typed conflict that names both", async () => {
    const always = (args: Json) => () => [replace(args)];
    await expect(inspect(["a", always("A")], ["b", always("B")])).rejects.toMatchObject({
      code: "before_tool_call_replacement_conflict",
      details: { replacingPluginId: "b", repeatedPluginId: "a" },
    });
  });

  test("a normaliser that is content with its own form composes cleanly with another", async () => {
    const trim: Plugin<Json, BeforeToolDirective> = ["a", (args) => (args === " X " ? [replace("X")] : [])];
    const lower: Plugin<Json, BeforeToolDirective> = ["b", (args) => (args === "X" ? [replace("x")] : [])];
    const plugins = [trim, lower];
    const verdict = await composeBeforeToolCall(" X ", 2, (n, args) => {
      const [pluginId, hook] = plugins[n] as (typeof plugins)[number];
      return hook(args).map((value) => ({ pluginId, value }));
    });
    expect(verdict.args).toBe("x");
  });

  test("events happen whatever the verdict", async () => {
    const { effects } = await inspect(
      ["a", () => [emit("one"), deny("no"), emit("two")]],
      ["b", () => [emit("three")]],
    );
    expect(effects.map(({ pluginId, value }) => [pluginId, value])).toEqual([
      ["a", emit("one")],
      ["a", emit("two")],
      ["b", emit("three")],
    ]);
  });

  test("whatever plugins say in whatever order, the verdict is as strong as the strongest and independent of order", async () => {
    const rank = (directive: BeforeToolDirective) =>
      directive.kind === "abort_turn"
        ? 2
        : directive.kind === "short_circuit_tool" && directive.output.status !== "success"
          ? 1
          : 0;
    const directive = fc.oneof(fc.constant(succeed(1)), fc.constant(deny("no")), fc.constant(abort("stop")));
    const plugins = fc.uniqueArray(fc.record({ id: fc.string({ minLength: 1, maxLength: 3 }), directive }), {
      selector: ({ id }) => id,
      minLength: 1,
      maxLength: 6,
    });
    await fc.assert(
      fc.asyncProperty(plugins, fc.func(fc.nat()), async (said, key) => {
        const run = (list: typeof said) => inspect(...list.map(({ id, directive: d }) => [id, () => [d]] as const));
        const one = await run(said);
        const shuffled = await run([...said].sort((a, b) => key(a.id) - key(b.id)));
        expect(rank(one.terminal?.value as BeforeToolDirective)).toBe(
          Math.max(...said.map((item) => rank(item.directive))),
        );
        expect(shuffled.terminal).toEqual(one.terminal);
      }),
    );
  });
});

describe("after a tool call", () => {
  test("a success may replace an original failure", async () => {
    const failed: ToolOutput = { status: "failure", failure: { kind: "execution", code: "tool_failed", message: "x" } };
    expect((await review(failed, ["a", () => [succeed("mended")]])).output).toEqual({
      status: "success",
      value: "mended",
    });
  });

  test("the first accepted replacement stays, and later hooks see it", async () => {
    const seen: ToolOutput[] = [];
    const verdict = await review(
      OK,
      ["a", (output) => (output === OK ? [succeed("first")] : [])],
      ["b", (output) => (seen.push(output), [])],
      ["c", () => []],
    );
    expect(verdict.output).toEqual({ status: "success", value: "first" });
    expect(seen).toEqual([{ status: "success", value: "first" }]);
  });

  test("a policy denies a secret in a replaced result, whether it stands before or after the replacer", async () => {
    const secret = (output: ToolOutput) => output.status === "success" && output.value === "secret";
    const policy: Plugin<ToolOutput, AfterToolDirective> = ["p", (output) => (secret(output) ? [deny("leak")] : [])];
    const leaky: Plugin<ToolOutput, AfterToolDirective> = [
      "l",
      (output) => (secret(output) ? [] : [succeed("secret")]),
    ];
    expect(code((await review(OK, policy, leaky)).output)).toBe("leak");
    expect(code((await review(OK, leaky, policy)).output)).toBe("leak");
  });

  test("of equal denials the first one said wins", async () => {
    expect(code((await review(OK, ["z", () => [deny("of z")]], ["a", () => [deny("of a")]])).output)).toBe("of z");
  });

  test("two plugins that always replace the result are a typed conflict", async () => {
    await expect(review(OK, ["a", () => [succeed("A")]], ["b", () => [succeed("B")]])).rejects.toMatchObject({
      code: "after_tool_call_replacement_conflict",
      details: { replacingPluginId: "b", repeatedPluginId: "a" },
    });
  });

  test("with nothing decisive the original result stands", async () => {
    const verdict = await review(OK, ["a", () => [emit("saw it")]]);
    expect([verdict.terminal, verdict.output]).toEqual([undefined, undefined]);
  });
});
