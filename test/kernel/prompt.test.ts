import { describe, expect, it } from "vitest";
import { assemblePrompt, type PromptContribution } from "../../src/kernel/index.js";

const NO_TOOLS = new Set<string>();

describe("assemblePrompt", () => {
  it("is the host's instructions when nobody contributes", () => {
    expect(assemblePrompt("Be kind.", [], NO_TOOLS)).toBe("Be kind.");
    expect(assemblePrompt("", [], NO_TOOLS)).toBe("");
  });

  it("orders sections by slot, whatever the order of contributions", () => {
    const contributions: PromptContribution[] = [
      { slot: "environment", content: "env" },
      { slot: "runtime_context", content: "runtime" },
      { slot: "guidance", content: "guide" },
      { slot: "project_instructions", content: "project" },
      { slot: "execution", content: "exec" },
      { slot: "intro", content: "intro" },
    ];
    expect(assemblePrompt("Host.", contributions, NO_TOOLS)).toBe(
      [
        "Host.",
        "intro",
        "## Execution",
        "exec",
        "## Guidance",
        "project",
        "guide",
        "## Environment",
        "runtime",
        "env",
      ].join("\n\n"),
    );
  });

  it("leaves out sections nobody filled, and the instructions when there are none", () => {
    expect(assemblePrompt("", [{ slot: "guidance", content: "guide" }], NO_TOOLS)).toBe("## Guidance\n\nguide");
  });

  it("puts a title over its content, unless it is blank", () => {
    const contributions: PromptContribution[] = [
      { slot: "intro", title: " Rules ", content: "one" },
      { slot: "intro", title: "  ", content: "two" },
    ];
    expect(assemblePrompt("", contributions, NO_TOOLS)).toBe("### Rules\n\none\n\ntwo");
  });

  it("sorts inside a slot by priority, and keeps the order of equals", () => {
    const contributions: PromptContribution[] = [
      { slot: "intro", content: "default 1" },
      { slot: "intro", content: "late", priority: 5 },
      { slot: "intro", content: "early", priority: -5 },
      { slot: "intro", content: "default 2", priority: 0 },
    ];
    expect(assemblePrompt("", contributions, NO_TOOLS)).toBe("early\n\ndefault 1\n\ndefault 2\n\nlate");
  });

  it("keeps what is for a tool only when one of them can be called", () => {
    const contributions: PromptContribution[] = [
      { slot: "intro", content: "for shell", tools: ["shell"] },
      { slot: "intro", content: "for either", tools: ["shell", "search"] },
      { slot: "intro", content: "for all", tools: [] },
    ];
    expect(assemblePrompt("", contributions, new Set(["search"]))).toBe("for either\n\nfor all");
  });

  it("says the same thing once, but twice for other tools, slots or priorities", () => {
    const contributions: PromptContribution[] = [
      { slot: "intro", content: "same" },
      { slot: "intro", content: "  same\n", priority: 0 },
      { slot: "intro", content: "same", tools: ["b", "a"] },
      { slot: "intro", content: "same", tools: ["a", "b"] },
      { slot: "intro", content: "same", priority: 1 },
      { slot: "execution", content: "same" },
    ];
    expect(assemblePrompt("", contributions, new Set(["a"]))).toBe("same\n\nsame\n\nsame\n\n## Execution\n\nsame");
  });

  it("drops blank contributions", () => {
    expect(assemblePrompt("Host.", [{ slot: "guidance", content: " \n " }], NO_TOOLS)).toBe("Host.");
  });
});
