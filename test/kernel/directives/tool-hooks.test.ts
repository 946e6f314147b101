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
} from "../../../src/kernel/index.js";

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
/** Done by whoever asks the hooks; nothing to the verdict. */
const create: BeforeToolDirective & AfterToolDirective = { kind: "create_session", request: {} };
const trace: BeforeToolDirective & AfterToolDirective = { kind: "emit_trace", name: "t" };

type Plugin<S, D> = readonly [id: string, hook: (subject: S) => readonly D[]];

const inspect = (...plugins: Plugin<Json, BeforeToolDirective>[]) => {
  const asked: [string, Json][] = [];
  /** Those asked for a second look. */
  const again: string[] = [];
  const ask = (n: number, args: Json, { second }: { second: boolean }): Owned<BeforeToolDirective>[] => {
    const [pluginId, hook] = plugins[n] as (typeof plugins)[number];
    asked.push([pluginId, args]);
    if (second) again.push(pluginId);
    return hook(args).map((value) => ({ pluginId, value }));
  };
  return composeBeforeToolCall("original", plugins.length, ask).then((verdict) => ({ ...verdict, asked, again }));
};

const review = (original: ToolOutput, ...plugins: Plugin<ToolOutput, AfterToolDirective>[]) =>
  composeAfterToolCall(original, plugins.length, async (n, output) => {
    const [pluginId, hook] = plugins[n] as (typeof plugins)[number];
    return hook(output).map((value) => ({ pluginId, value }));
  });

/** How much a directive decides: nothing, a result, a refusal, the end of the turn. */
function rank(directive: BeforeToolDirective | AfterToolDirective | undefined): number {
  if (directive?.kind === "abort_turn") return 3;
  if (directive?.kind !== "short_circuit_tool") return 0;
  return directive.output.status === "success" ? 1 : 2;
}
const strongest = (said: readonly { readonly directives: readonly BeforeToolDirective[] }[]) =>
  Math.max(0, ...said.flatMap(({ directives }) => directives.map(rank)));

const terminals = [succeed(1), succeed(2), deny("no"), deny("never"), abort("stop"), abort("halt")];
const ids = fc.string({ minLength: 1, maxLength: 3 });
/** Plugins of different ids, each with what it says whatever it is asked. */
const sayingPlugins = (...said: (BeforeToolDirective & AfterToolDirective)[]) =>
  fc.uniqueArray(fc.record({ id: ids, directives: fc.array(fc.constantFrom(...said), { maxLength: 4 }) }), {
    selector: ({ id }) => id,
    minLength: 1,
    maxLength: 6,
  });
const value = fc.constantFrom<Json>("original", "a", "b", "c");
/** Plugins that each deny one value and put another in the place of a third. None puts in what it denies itself. */
const policies = fc.uniqueArray(
  fc
    .record({ id: ids, denies: fc.option(value, { nil: undefined }), from: value, to: value })
    .filter(({ denies, to }) => denies !== to),
  { selector: ({ id }) => id, minLength: 1, maxLength: 5 },
);
/** Another order of the same plugins. */
const shuffled = <P extends { readonly id: string }>(plugins: readonly P[], key: (id: string) => number) =>
  [...plugins].sort((a, b) => key(a.id) - key(b.id));

const code = (output: ToolOutput | undefined) => (output?.status === "failure" ? output.failure.code : output?.status);
const OK: ToolOutput = { status: "success", value: "original" };

describe("before a tool call", () => {
  // §15.41
  // turn §8.60
  test("a denial stands whether the success comes before or after it", async () => {
    expect(code((await inspect(["a", () => [deny("no")]], ["b", () => [succeed(1)]])).output)).toBe("no");
    expect(code((await inspect(["a", () => [succeed(1)]], ["b", () => [deny("no")]])).output)).toBe("no");
  });

  // §15.41
  // turn §8.60
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

  // §15.42
  test("a denial displaced by an abort keeps its words; an abort that came first keeps its own", async () => {
    expect(code((await inspect(["a", () => [deny("no")]], ["b", () => [abort("stop")]])).output)).toBe("no");
    expect(code((await inspect(["a", () => [abort("stop")]], ["b", () => [deny("no")]])).output)).toBe("stop");
  });

  // §15.43
  // turn §8.60
  test("of equal denials the smaller plugin id wins, in either order of registration", async () => {
    expect(code((await inspect(["a", () => [deny("of a")]], ["b", () => [deny("of b")]])).output)).toBe("of a");
    expect(code((await inspect(["b", () => [deny("of b")]], ["a", () => [deny("of a")]])).output)).toBe("of a");
  });

  // §15.44
  test("of one plugin's own equal denials the first wins, and it is not in conflict with itself", async () => {
    const verdict = await inspect(["a", () => [deny("first"), deny("second")]]);
    expect(code(verdict.output)).toBe("first");
    expect(verdict.conflicts).toEqual([]);
  });

  // §15.44
  // turn §8.60
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

  // §15.45
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

  // §15.45
  test("an earlier hook denies what a later one put in", async () => {
    const guard: Plugin<Json, BeforeToolDirective> = ["a", (args) => (args === "secret" ? [deny("no secrets")] : [])];
    expect(code((await inspect(guard, ["b", () => [replace("secret")]])).output)).toBe("no secrets");
    expect(code((await inspect(["b", () => [replace("secret")]], guard)).output)).toBe("no secrets");
  });

  // §15.46
  // turn §8.61
  test("a second look repeats no side effect, takes no success and makes no conflict", async () => {
    const { effects, output, conflicts } = await inspect(
      ["a", (args) => (args === "new" ? [emit("again"), succeed("again")] : [emit("once")])],
      ["b", () => [replace("new")]],
    );
    expect(effects.map(({ value }) => value)).toEqual([emit("once")]);
    expect(output).toBeUndefined();
    expect(conflicts).toEqual([]);
  });

  // §15.47
  // turn §8.60
  test("two plugins that always replace are a typed conflict that names both", async () => {
    const always = (args: Json) => () => [replace(args)];
    await expect(inspect(["a", always("A")], ["b", always("B")])).rejects.toMatchObject({
      code: "before_tool_call_replacement_conflict",
      details: { replacingPluginId: "b", repeatedPluginId: "a" },
    });
  });

  // §15.48
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

  // §15.46
  test("hooks are told that it is a second look only when it is one", async () => {
    const { asked, again } = await inspect(
      ["a", () => []],
      ["b", (args) => (args === "original" ? [replace("new")] : [])],
      ["c", (args) => (args === "new" ? [replace("newer")] : [])],
    );
    expect(asked).toEqual([
      ["a", "original"],
      ["b", "original"],
      ["a", "new"],
      ["c", "new"],
      ["a", "newer"],
      ["b", "newer"],
    ]);
    expect(again).toEqual(["a", "a", "b"]);
  });

  test("sessions and traces are neither a verdict nor an effect, also on a second look", async () => {
    const verdict = await inspect(["a", () => [create, trace]], ["b", () => [trace, replace("new"), create]]);
    expect(verdict).toMatchObject({ args: "new", terminal: undefined, output: undefined, effects: [], conflicts: [] });
  });

  // §15.41 §15.42 §15.43
  test("whatever plugins say in whatever order, the verdict is as strong as the strongest and independent of order", async () => {
    await fc.assert(
      fc.asyncProperty(sayingPlugins(...terminals, emit("e"), create, trace), fc.func(fc.nat()), async (said, key) => {
        const run = (list: typeof said) =>
          inspect(...list.map(({ id, directives }) => [id, () => directives] as const));
        const one = await run(said);
        expect(rank(one.terminal?.value)).toBe(strongest(said));
        expect((await run(shuffled(said, key))).terminal).toEqual(one.terminal);
      }),
    );
  });

  test("one more plugin never weakens the verdict, wherever it is registered", async () => {
    await fc.assert(
      fc.asyncProperty(sayingPlugins(...terminals, emit("e"), create, trace), fc.nat(), async (said, at) => {
        const run = (list: typeof said) =>
          inspect(...list.map(({ id, directives }) => [id, () => directives] as const));
        const without = await run(said.filter((_, index) => index !== at % said.length));
        const { terminal } = await run(said);
        expect(rank(terminal?.value)).toBeGreaterThanOrEqual(rank(without.terminal?.value));
      }),
    );
  });

  test("sessions and traces put anywhere between the others change nothing of the verdict", async () => {
    await fc.assert(
      fc.asyncProperty(sayingPlugins(...terminals, emit("e"), create, trace), async (said) => {
        const bare = said.map(({ id, directives }) => ({
          id,
          directives: directives.filter((directive) => directive !== create && directive !== trace),
        }));
        const run = (list: typeof said) =>
          inspect(...list.map(({ id, directives }) => [id, () => directives] as const));
        expect(await run(said)).toEqual(await run(bare));
      }),
    );
  });

  // §15.45 §15.46
  test("no call goes through with arguments that any plugin denies, whoever puts them in and in whatever order", async () => {
    await fc.assert(
      fc.asyncProperty(policies, async (said) => {
        const hooks = said.map(
          ({ id, denies, from, to }): Plugin<Json, BeforeToolDirective> => [
            id,
            (args) => (args === denies ? [deny("no")] : args === from && from !== to ? [replace(to)] : []),
          ],
        );
        const verdict = await inspect(...hooks).catch((error: unknown) => error);
        if (verdict instanceof Error) {
          expect(verdict).toMatchObject({ code: "before_tool_call_replacement_conflict" });
          return;
        }
        const { args, output } = verdict as Awaited<ReturnType<typeof inspect>>;
        if (said.some(({ denies }) => denies === args)) expect(code(output)).toBe("no");
      }),
      { numRuns: 500 },
    );
  });
});

describe("after a tool call", () => {
  // §15.50
  test("a success may replace an original failure", async () => {
    const failed: ToolOutput = { status: "failure", failure: { kind: "execution", code: "tool_failed", message: "x" } };
    expect((await review(failed, ["a", () => [succeed("mended")]])).output).toEqual({
      status: "success",
      value: "mended",
    });
  });

  // §15.49
  test("the first accepted replacement stays, and later hooks see it", async () => {
    const seen: ToolOutput[] = [];
    const verdict = await review(
      OK,
      ["a", (output) => (output === OK ? [succeed("first")] : [])],
      [
        "b",
        (output) => {
          seen.push(output);
          return [];
        },
      ],
      ["c", () => []],
    );
    expect(verdict.output).toEqual({ status: "success", value: "first" });
    expect(seen).toEqual([{ status: "success", value: "first" }]);
  });

  // §15.49
  // turn §8.61
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

  // §15.47
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

  test("sessions and traces are neither a verdict nor an effect", async () => {
    const verdict = await review(OK, ["a", () => [create, trace]], ["b", () => [trace, emit("e"), create]]);
    expect(verdict).toMatchObject({ terminal: undefined, output: undefined, conflicts: [] });
    expect(verdict.effects).toEqual([{ pluginId: "b", value: emit("e") }]);
  });

  // §15.41 §15.42
  test("whatever plugins say in whatever order, the verdict is as strong as the strongest", async () => {
    const restrictions = terminals.filter((directive) => rank(directive) > 1);
    await fc.assert(
      fc.asyncProperty(
        sayingPlugins(...restrictions, emit("e"), create, trace),
        fc.func(fc.nat()),
        async (said, key) => {
          const run = (list: typeof said) =>
            review(OK, ...list.map(({ id, directives }) => [id, () => directives] as const));
          for (const list of [said, shuffled(said, key)]) {
            const { terminal } = await run(list);
            expect(rank(terminal?.value)).toBe(strongest(said));
            // Of equals the first one said stands.
            const first = list.flatMap(({ directives }) => directives).find((each) => rank(each) === strongest(said));
            if (terminal !== undefined) expect(terminal.value).toEqual(first);
          }
        },
      ),
    );
  });

  // §15.49
  test("no result goes through that any plugin denies, whoever puts it in and in whatever order", async () => {
    await fc.assert(
      fc.asyncProperty(policies, async (said) => {
        const hooks = said.map(
          ({ id, denies, from, to }): Plugin<ToolOutput, AfterToolDirective> => [
            id,
            (output) => {
              const current = output.status === "success" ? output.value : undefined;
              return current === denies ? [deny("no")] : current === from && from !== to ? [succeed(to)] : [];
            },
          ],
        );
        const verdict = await review(OK, ...hooks).catch((error: unknown) => error);
        if (verdict instanceof Error) {
          expect(verdict).toMatchObject({ code: "after_tool_call_replacement_conflict" });
          return;
        }
        const { output = OK } = verdict as Awaited<ReturnType<typeof review>>;
        if (output.status === "success") expect(said.map(({ denies }) => denies)).not.toContain(output.value);
      }),
      { numRuns: 500 },
    );
  });
});
