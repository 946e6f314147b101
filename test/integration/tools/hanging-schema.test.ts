import { scriptedModel } from "troupe";
import { expect, test } from "vitest";
import { firstToolValue, fixture, plugin, RESIDENT, startTroupe } from "../../support/runtime.js";

const endless = { word: `${"a".repeat(60)}!` };
const inputSchema = { type: "object", properties: { word: { type: "string", pattern: "^(a+)+$" } } } as const;
const tools = {
  host: { description: "Of the host", inputSchema, execute: () => "ran" },
  pool: { module: fixture("tools/backtracks.mjs") },
};
const calling = (tool: string) => (args: object) => [{ toolCalls: [{ tool, args: args as never }] }, { text: "done" }];

test.each([
  ["host", {}],
  ["pool", {}],
  ["plugin", { plugins: [{ module: plugin("backtracks"), tier: "inline" as const }] }],
])(
  "arguments a pattern of a %s tool never ends with fail their call, and a session beside it has its turns",
  async (tool, more) => {
    const call = calling(tool);
    const troupe = await startTroupe({
      ...RESIDENT,
      sessionWorkers: 1,
      tools,
      ...more,
      model: scriptedModel({ turns: [call(endless), call({ word: "aa" })] }),
      models: { plain: scriptedModel({ turns: [[{ text: "fine" }]] }) },
    });
    const bad = await troupe.session("bad");
    const good = await troupe.session("good");
    let ended = false;
    const hanging = bad.turn("one").then((result) => {
      ended = true;
      return result;
    });
    // The first of these may come before the call is checked; the last does not.
    let beside = 0;
    while (!ended) {
      expect((await good.turn("hi", { model: "plain" })).text).toBe("fine");
      beside++;
    }
    expect(beside).toBeGreaterThan(1);
    expect(firstToolValue(await hanging)).toBe("tool_check_timeout");
    expect(firstToolValue(await bad.turn("two"))).toBe("ran");
  },
);
