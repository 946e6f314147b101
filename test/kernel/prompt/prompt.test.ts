import { describe, expect, it } from "vitest";
import { checkPromptLayer, PromptCache, type PromptContribution, type PromptLayer } from "../../../src/kernel/index.js";
import { renderPrompt } from "../../../src/kernel/prompt/prompt.js";

const NO_TOOLS: readonly string[] = [];
const assemblePrompt = (instructions: string, contributions: readonly PromptContribution[], tools: readonly string[]) =>
  renderPrompt({ instructions, contributions, tools }).system;

describe("renderPrompt", () => {
  it("is the host's instructions when nobody contributes", () => {
    expect(assemblePrompt("Be kind.", [], NO_TOOLS)).toBe("Be kind.");
    expect(assemblePrompt("", [], NO_TOOLS)).toBe("");
  });

  // §15.16
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
      ["Host.", "intro", "## Execution", "exec", "## Guidance", "project", "guide"].join("\n\n"),
    );
    expect(renderPrompt({ instructions: "Host.", contributions, tools: [] }).volatile).toBe(
      ["## Environment", "runtime", "env"].join("\n\n"),
    );
  });

  it("keeps what is marked volatile out of the system text, and in it what is marked as not", () => {
    const contributions: PromptContribution[] = [
      { slot: "guidance", content: "It is noon.", volatile: true },
      { slot: "guidance", content: "Be brief." },
      { slot: "environment", content: "Linux", volatile: false },
      { slot: "environment", content: "3 files are open" },
    ];
    expect(renderPrompt({ instructions: "Host.", contributions, tools: [] })).toEqual({
      system: "Host.\n\n## Guidance\n\nBe brief.\n\n## Environment\n\nLinux",
      volatile: "## Guidance\n\nIt is noon.\n\n## Environment\n\n3 files are open",
    });
  });

  it("gives the same system text whatever the volatile contributions say", () => {
    const at = (time: string) =>
      renderPrompt({ instructions: "Host.", contributions: [{ slot: "runtime_context", content: time }], tools: [] });
    expect(at("10:00").system).toBe(at("10:01").system);
    expect(at("10:00").volatile).not.toBe(at("10:01").volatile);
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

  // §15.16
  it("sorts inside a slot by priority, and keeps the order of equals", () => {
    const contributions: PromptContribution[] = [
      { slot: "intro", content: "default 1" },
      { slot: "intro", content: "late", priority: 5 },
      { slot: "intro", content: "early", priority: -5 },
      { slot: "intro", content: "default 2", priority: 0 },
    ];
    expect(assemblePrompt("", contributions, NO_TOOLS)).toBe("early\n\ndefault 1\n\ndefault 2\n\nlate");
  });

  // §15.17
  it("keeps what is for a tool only when one of them can be called", () => {
    const contributions: PromptContribution[] = [
      { slot: "intro", content: "for shell", tools: ["shell"] },
      { slot: "intro", content: "for either", tools: ["shell", "search"] },
      { slot: "intro", content: "for all", tools: [] },
    ];
    expect(assemblePrompt("", contributions, ["search"])).toBe("for either\n\nfor all");
  });

  // §15.16
  it("says the same thing once, but twice for other tools, slots or priorities", () => {
    const contributions: PromptContribution[] = [
      { slot: "intro", content: "same" },
      { slot: "intro", content: "  same\n", priority: 0 },
      { slot: "intro", content: "same", tools: ["b", "a"] },
      { slot: "intro", content: "same", tools: ["a", "b"] },
      { slot: "intro", content: "same", priority: 1 },
      { slot: "execution", content: "same" },
    ];
    expect(assemblePrompt("", contributions, ["a"])).toBe("same\n\nsame\n\nsame\n\n## Execution\n\nsame");
  });

  it("drops blank contributions", () => {
    expect(assemblePrompt("Host.", [{ slot: "guidance", content: " \n " }], NO_TOOLS)).toBe("Host.");
  });
});

const layer = (slots: PromptLayer["slots"]): PromptLayer => (slots === undefined ? {} : { slots });

describe("layers", () => {
  const base: PromptContribution[] = [
    { slot: "guidance", content: "from a plugin" },
    { slot: "environment", content: "Linux" },
  ];
  const rendered = (...layers: PromptLayer[]) => {
    const { system, volatile } = renderPrompt({ instructions: "", contributions: base, layers, tools: [] });
    return `${system}\n~~~\n${volatile}`;
  };

  // turn §8.96
  it("add to a slot behind what is there", () => {
    expect(rendered(layer({ guidance: { contributions: [{ content: "from the host" }] } }))).toBe(
      "## Guidance\n\nfrom a plugin\n\nfrom the host\n~~~\n## Environment\n\nLinux",
    );
  });

  // turn §8.96
  it("replace a slot when they reset it, and leave the others alone", () => {
    const reset = layer({ guidance: { reset: true, contributions: [{ content: "only this" }] } });
    expect(rendered(reset)).toBe("## Guidance\n\nonly this\n~~~\n## Environment\n\nLinux");
    expect(rendered(layer({ guidance: { reset: true, contributions: [] } }))).toBe("\n~~~\n## Environment\n\nLinux");
  });

  // turn §8.96
  it("force what they contribute into the slot they put it in", () => {
    const foreign = { slot: "intro", content: "moved" } as { content: string };
    expect(rendered(layer({ environment: { contributions: [foreign] } }))).toBe(
      "## Guidance\n\nfrom a plugin\n~~~\n## Environment\n\nLinux\n\nmoved",
    );
  });

  // turn §8.96
  it("let the last template win", () => {
    const first: PromptLayer = { template: [{ entries: [{ text: "first" }] }] };
    const last: PromptLayer = {
      template: [{ title: "World", entries: [{ slot: "environment" }, { text: "The end." }] }],
    };
    expect(rendered(first, last)).toBe("## World\n\nThe end.\n~~~\n## World\n\nLinux");
    expect(rendered(last, first)).toBe("first\n~~~\n");
  });
});

describe("builtins", () => {
  it("are the instructions, the protocol's way to work, and what goes with tools", () => {
    expect(
      renderPrompt({ instructions: "Host.", execution: "Write code.", contributions: [], tools: ["ask"] }).system,
    ).toBe(
      "Host.\n\n## Execution\n\nWrite code.\n\n## Guidance\n\nWhen something you need is unclear, call `ask` instead of guessing.",
    );
  });

  // turn §8.97
  it("mention asking only when a tool called ask can be called", () => {
    expect(renderPrompt({ instructions: "Host.", contributions: [], tools: ["shell"] }).system).toBe("Host.");
  });
});

// turn §8.95
describe("a prompt cache", () => {
  const input = { instructions: "Host.", contributions: [{ slot: "intro", content: "a" }], tools: ["x"] } as const;

  it("renders once for the same inputs, and again for any that changed", () => {
    const cache = new PromptCache();
    const first = cache.prompt(input);
    expect(cache.prompt({ ...input, contributions: [{ slot: "intro", content: "a" }] })).toBe(first);
    expect(cache.renders).toBe(1);
    for (const changed of [
      { ...input, instructions: "Other." },
      { ...input, execution: "Write code." },
      { ...input, tools: ["y"] },
      { ...input, contributions: [{ slot: "intro", content: "b" }] as const },
      { ...input, layers: [{}] },
    ]) {
      const before = cache.renders;
      expect(cache.prompt(changed)).toEqual(renderPrompt(changed));
      expect(cache.renders).toBe(before + 1);
    }
  });

  it("forgets when it is told to", () => {
    const cache = new PromptCache();
    cache.prompt(input);
    cache.clear();
    cache.prompt(input);
    expect(cache.renders).toBe(2);
  });
});

describe("checkPromptLayer", () => {
  it("takes what a layer can have", () => {
    const whole: PromptLayer = {
      template: [{ title: "A", entries: [{ builtin: "intro" }, { slot: "guidance" }, { text: "t" }] }],
      slots: { guidance: { reset: true, contributions: [{ content: "c", priority: 1 }] } },
    };
    expect(checkPromptLayer(whole)).toBe(whole);
    expect(checkPromptLayer({})).toEqual({});
  });

  it.each<[string, unknown, string]>([
    ["text", "prompt", "a layer is an object with a template or slots; a text for every prompt is `instructions`"],
    ["an unknown field", { slot: {} }, 'a layer has no field "slot". Did you mean "slots"?'],
    [
      "an unknown slot",
      { slots: { middle: { contributions: [] } } },
      'a prompt has no slot "middle". There are: intro, execution, guidance, project_instructions, runtime_context, environment.',
    ],
    ["a slot without contributions", { slots: { intro: {} } }, "slot intro needs contributions with their content"],
    [
      "a contribution without content",
      { slots: { intro: { contributions: [{}] } } },
      "slot intro needs contributions with their content",
    ],
    ["a template that is no list", { template: {} }, "a template is a list of sections"],
    [
      "an entry of no kind",
      { template: [{ entries: [{}] }] },
      "a section has entries, each with a text, a builtin (intro, execution, guidance) or a slot",
    ],
  ])("refuses %s", (_, given, why) => {
    expect(() => checkPromptLayer(given)).toThrow(
      expect.objectContaining({
        code: "invalid_prompt",
        message: `The prompt cannot be used: ${/[.?]$/.test(why) ? why : `${why}.`}`,
      }),
    );
  });
});
