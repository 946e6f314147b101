import fc from "fast-check";
import { describe, expect, it } from "vitest";
import {
  foldTurnDirectives,
  NO_DIRECTIVES,
  type Owned,
  strongerTerminal,
  type ToolTerminal,
  type TurnDirective,
} from "../../src/kernel/index.js";

const from = (pluginId: string, value: TurnDirective): Owned<TurnDirective> => ({ pluginId, value });
const abort = (code: string): TurnDirective => ({ kind: "abort_turn", code, message: "." });

describe("foldTurnDirectives", () => {
  it("gives the same empty value when there is nothing to fold", () => {
    expect(foldTurnDirectives([])).toBe(NO_DIRECTIVES);
  });

  it("lets the last abort win", () => {
    const folded = foldTurnDirectives([from("b", abort("first")), from("a", abort("second"))]);
    expect(folded.abort).toEqual({ pluginId: "a", value: { kind: "abort_turn", code: "second", message: "." } });
  });

  it("keeps messages and events in order, each with its plugin, also beside an abort", () => {
    const message = (text: string) => ({ role: "user", text }) as const;
    expect(
      foldTurnDirectives([
        from("b", { kind: "enqueue_messages", messages: [message("1"), message("2")] }),
        from("a", { kind: "emit_events", events: [{ name: "x" }] }),
        from("c", abort("no")),
        from("a", { kind: "enqueue_messages", messages: [message("3")] }),
        from("b", { kind: "emit_events", events: [{ name: "y", payload: 1 }, { name: "z" }] }),
      ]),
    ).toEqual({
      abort: { pluginId: "c", value: abort("no") },
      messages: [
        { pluginId: "b", value: { role: "user", text: "1" } },
        { pluginId: "b", value: { role: "user", text: "2" } },
        { pluginId: "a", value: { role: "user", text: "3" } },
      ],
      events: [
        { pluginId: "a", value: { name: "x" } },
        { pluginId: "b", value: { name: "y", payload: 1 } },
        { pluginId: "b", value: { name: "z" } },
      ],
    });
  });
});

describe("strongerTerminal", () => {
  const success = (pluginId: string, value = "ok"): ToolTerminal => ({
    pluginId,
    value: { kind: "short_circuit_tool", output: { status: "success", value } },
  });
  const denial = (pluginId: string): ToolTerminal => ({
    pluginId,
    value: {
      kind: "short_circuit_tool",
      output: { status: "failure", failure: { kind: "permission_denied", code: "no", message: "No." } },
    },
  });
  const cancellation = (pluginId: string): ToolTerminal => ({
    pluginId,
    value: { kind: "short_circuit_tool", output: { status: "cancelled", message: "Stopped." } },
  });
  const abortOf = (pluginId: string): ToolTerminal => ({
    pluginId,
    value: { kind: "abort_turn", code: "no", message: "No." },
  });
  const fold = (terminals: readonly ToolTerminal[]) =>
    terminals.reduce<ToolTerminal | undefined>(strongerTerminal, undefined);
  const rank = (terminal: ToolTerminal | undefined) => {
    if (terminal === undefined) return -1;
    if (terminal.value.kind === "abort_turn") return 2;
    return terminal.value.output.status === "success" ? 0 : 1;
  };
  const terminal = fc
    .tuple(fc.constantFrom("a", "b", "c", "d"), fc.constantFrom(success, denial, cancellation, abortOf))
    .map(([pluginId, make]) => make(pluginId));
  const perPlugin = fc.uniqueArray(terminal, { selector: ({ pluginId }) => pluginId });

  it.each<[string, ToolTerminal, ToolTerminal, ToolTerminal]>([
    ["a denial over a success", success("a"), denial("b"), denial("b")],
    ["an earlier denial over a later success", denial("b"), success("a"), denial("b")],
    ["an abort over a denial", denial("a"), abortOf("b"), abortOf("b")],
    ["an earlier abort over a later denial", abortOf("b"), denial("a"), abortOf("b")],
    ["a cancellation over a success", success("a"), cancellation("b"), cancellation("b")],
    ["the smaller plugin id among equals", denial("b"), denial("a"), denial("a")],
    ["the smaller plugin id among equals, also when it was first", denial("a"), denial("b"), denial("a")],
    ["the first of one plugin's own", success("a", "first"), success("a", "second"), success("a", "first")],
  ])("prefers %s", (_, first, second, winner) => {
    expect(strongerTerminal(first, second)).toEqual(winner);
  });

  it("never lets a weaker one displace a stronger, whatever the order", () => {
    fc.assert(
      fc.property(fc.array(terminal), (terminals) => {
        expect(rank(fold(terminals))).toBe(Math.max(-1, ...terminals.map(rank)));
      }),
    );
  });

  it("only ever grows stronger", () => {
    fc.assert(
      fc.property(terminal, terminal, (current, next) => {
        expect(rank(strongerTerminal(current, next))).toBeGreaterThanOrEqual(rank(current));
      }),
    );
  });

  it("does not depend on the order when each comes from another plugin", () => {
    const shuffled = perPlugin.chain((terminals) =>
      fc.tuple(
        fc.constant(terminals),
        fc.shuffledSubarray(terminals, { minLength: terminals.length, maxLength: terminals.length }),
      ),
    );
    fc.assert(
      fc.property(shuffled, ([one, other]) => {
        expect(fold(other)).toEqual(fold(one));
      }),
    );
  });
});
