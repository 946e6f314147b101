import fc from "fast-check";
import { expect, it } from "vitest";
import type { ToolAvailability } from "../../../src/kernel/index.js";
import { SessionTools, ToolRegistry } from "../../../src/tools/index.js";
import { names, tool } from "../registered.js";

/** Two ids share the name `weather`: at most one of them is live at a time. `shell` is hidden. */
const NAMES = { a: "a", b: "b", shell: "shell", old: "weather", new: "weather" } as const;
type Id = keyof typeof NAMES;
const HIDDEN: Id = "shell";

const registry = (ids: Iterable<Id>) => new ToolRegistry([...ids].map((id) => tool(NAMES[id], { id })));

const sources: fc.Arbitrary<ReadonlySet<Id>> = fc
  .subarray<Id>(["a", "b", "shell", "new", "old"])
  .map((ids) => new Set(ids.filter((id) => id !== "old" || !ids.includes("new"))));

type Step =
  | { readonly kind: "membership"; readonly name: string; readonly present: boolean }
  | { readonly kind: "availability"; readonly name: string; readonly availability: ToolAvailability | null }
  | { readonly kind: "apply_export" | "apply_stale" | "restore_here" | "restore_anew" }
  | { readonly kind: "rebind"; readonly ids: ReadonlySet<Id> };

const name = fc.constantFrom("a", "b", "shell", "weather", "nothing");
const step: fc.Arbitrary<Step> = fc.oneof(
  fc.record({ kind: fc.constant("membership" as const), name, present: fc.boolean() }),
  fc.record({
    kind: fc.constant("availability" as const),
    name,
    availability: fc.constantFrom(null, "off", "searchable", "callable", "showcased"),
  }),
  fc.record({ kind: fc.constantFrom("apply_export", "apply_stale", "restore_here", "restore_anew") }),
  fc.record({ kind: fc.constant("rebind" as const), ids: sources }),
);

/** What a session should have: for every tool it ever met, whether it is live and how it was set. */
class Model {
  readonly settings = new Map<Id, ToolAvailability>();
  live: ReadonlySet<Id> = new Set();

  meet(ids: ReadonlySet<Id>): void {
    this.live = ids;
    for (const id of ids) if (id !== HIDDEN && !this.settings.has(id)) this.settings.set(id, "showcased");
  }

  /** False when the name is nobody's. */
  set(toolName: string, to: (now: ToolAvailability) => ToolAvailability): boolean {
    const known = [...this.settings.keys()].filter((id) => NAMES[id] === toolName);
    const live = known.filter((id) => this.live.has(id));
    for (const id of live.length > 0 ? live : known) this.settings.set(id, to(this.settings.get(id) ?? "off"));
    return known.length > 0;
  }

  liveNames(...availabilities: ToolAvailability[]): string[] {
    const ids = [...this.settings].filter(([id, set]) => this.live.has(id) && availabilities.includes(set));
    return ids.map(([id]) => NAMES[id]).sort();
  }

  orphans(): string[] {
    return [...this.settings.keys()].filter((id) => !this.live.has(id)).sort();
  }
}

const CALLABLE: readonly ToolAvailability[] = ["callable", "showcased"];

/** Takes one step with both; a session restored anew is another object. */
function take(step: Step, tools: SessionTools, model: Model): SessionTools {
  const edit = (allowed: boolean, run: () => unknown) => {
    if (allowed) run();
    else expect(run).toThrow(expect.objectContaining({ code: "tool_unknown" }));
  };
  switch (step.kind) {
    case "membership": {
      const allowed = model.set(step.name, (now) => {
        if (CALLABLE.includes(now) === step.present) return now;
        return step.present ? "showcased" : "off";
      });
      edit(allowed, () => tools.setMembership([step.name], step.present));
      return tools;
    }
    case "availability": {
      const allowed = model.set(step.name, () => step.availability ?? "showcased");
      edit(allowed, () => tools.setAvailability([step.name], step.availability));
      return tools;
    }
    case "apply_export":
      expect(tools.applyState(tools.exportState())).toBe(tools.generation);
      return tools;
    case "apply_stale": {
      const stale = { ...tools.exportState(), generation: tools.generation - 1 };
      expect(() => tools.applyState(stale)).toThrow(expect.objectContaining({ code: "tool_state_stale" }));
      return tools;
    }
    case "restore_here":
      tools.restoreState(tools.exportState());
      return tools;
    case "restore_anew":
      return new SessionTools(registry(model.live), { hidden: [HIDDEN], state: tools.exportState() });
    case "rebind":
      model.meet(step.ids);
      tools.rebind(registry(step.ids));
      return tools;
  }
}

it("a session's tools are what its edits made of them, whatever becomes of their sources", () => {
  fc.assert(
    fc.property(sources, fc.array(step, { maxLength: 25 }), (first, steps) => {
      const model = new Model();
      model.meet(first);
      let tools = new SessionTools(registry(first), { hidden: [HIDDEN] });
      for (const next of steps) {
        const before = tools.generation;
        tools = take(next, tools, model);

        expect(tools.generation).toBeGreaterThanOrEqual(before);
        expect(tools.get(HIDDEN)).toBeUndefined();
        expect(names(tools.specs())).toEqual(model.liveNames("callable", "showcased"));
        expect(names(tools.catalog())).toEqual(model.liveNames("searchable", "callable", "showcased"));
        expect(tools.orphans).toEqual(model.orphans());
        for (const { name } of tools.specs()) expect(tools.get(name)?.spec.name).toBe(name);

        const exported = tools.exportState();
        expect(Object.keys(exported.tools)).toEqual([...model.settings.keys()].sort());
        const again = new SessionTools(registry(model.live), { hidden: [HIDDEN], state: exported });
        expect(again.exportState()).toEqual(exported);
      }
    }),
  );
});
