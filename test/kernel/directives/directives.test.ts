import { describe, expect, it } from "vitest";
import { foldTurnDirectives, NO_DIRECTIVES, type Owned, type TurnDirective } from "../../../src/kernel/index.js";

const from = (pluginId: string, value: TurnDirective): Owned<TurnDirective> => ({ pluginId, value });
const abort = (code: string): TurnDirective => ({ kind: "abort_turn", code, message: "." });

describe("foldTurnDirectives", () => {
  it("gives the same empty value when there is nothing to fold", () => {
    expect(foldTurnDirectives([])).toBe(NO_DIRECTIVES);
  });

  it("has one set of options for the next model call, the later plugin's over the earlier's", () => {
    const folded = foldTurnDirectives([
      from("a", { kind: "next_model_call", options: { temperature: 0, seed: 1 } }),
      from("b", { kind: "next_model_call", options: { temperature: 1 } }),
    ]);
    expect(folded.nextCall).toEqual({ temperature: 1, seed: 1 });
    expect(foldTurnDirectives([from("a", abort("no"))])).not.toHaveProperty("nextCall");
  });

  // §15.19
  it("lets the last abort win", () => {
    const folded = foldTurnDirectives([from("b", abort("first")), from("a", abort("second"))]);
    expect(folded.abort).toEqual({ pluginId: "a", value: { kind: "abort_turn", code: "second", message: "." } });
  });

  // §15.19
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

  it("passes over sessions and traces: they are done before anything is folded", () => {
    const immediate: TurnDirective[] = [
      { kind: "create_session", request: {} },
      { kind: "emit_trace", name: "t" },
    ];
    expect(foldTurnDirectives(immediate.map((value) => from("a", value)))).toEqual({
      abort: undefined,
      messages: [],
      events: [],
    });
    const around = [immediate[0], abort("no"), immediate[1]].map((value) => from("a", value as TurnDirective));
    expect(foldTurnDirectives(around).abort).toEqual({ pluginId: "a", value: abort("no") });
  });
});
