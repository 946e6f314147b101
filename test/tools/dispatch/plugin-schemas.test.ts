import { expect, test } from "vitest";
import { systemClock } from "../../../src/async/index.js";
import { executeTool, registerTool, type ToolHomeRef, ToolRegistry } from "../../../src/tools/index.js";
import { Deadlines } from "../../../src/wire/index.js";

const PATTERN = { type: "object", properties: { a: { type: "string", pattern: "^x" } } };
const PLAIN = { type: "object", properties: { a: { type: "string" } } };

/** Calls a tool with `{ a: "y" }`, and counts how often its home and the thread that checks were asked. */
async function called(home: ToolHomeRef, inputSchema: object, found?: string) {
  const asked = { runs: 0, checks: 0 };
  const at = { run: () => `ran ${++asked.runs}` };
  const { output, ran } = await executeTool({
    registry: new ToolRegistry([registerTool("t", { description: "A tool", inputSchema: inputSchema as never }, home)]),
    homes: { host: at, plugin: at, pool: at },
    checks: {
      check: async () => {
        asked.checks++;
        return found;
      },
    },
    deadlines: new Deadlines(systemClock),
    call: { callId: "c", toolName: "t", args: { a: "y" } },
    hidden: new Set(),
    sessionId: "s",
    turnId: "1",
    signal: new AbortController().signal,
  });
  return { ...asked, ran, output };
}

const HOST = { kind: "host" } as const;
const POOL = { kind: "pool", module: "file:///t.mjs" } as const;
const PLUGIN = { kind: "plugin", pluginId: "p" } as const;
const INLINE = { ...PLUGIN, isHere: true } as const;

test.each([
  ["host", "with a pattern", HOST, PATTERN, 1],
  ["pool", "with a pattern", POOL, PATTERN, 1],
  ["plugin", "with a pattern", PLUGIN, PATTERN, 0],
  ["inline plugin", "with a pattern", INLINE, PATTERN, 1],
  ["inline plugin", "without one", INLINE, PLAIN, 0],
  ["host", "without one", HOST, PLAIN, 0],
  ["pool", "without one", POOL, PLAIN, 0],
] as const)("the schema of a %s's tool %s: %j, %j is checked on the pool's threads %i time(s)", async (...row) => {
  const [, , home, schema, checks] = row;
  expect(await called(home, schema)).toMatchObject({ runs: 1, checks });
});

test("arguments that were found not to fit elsewhere do not reach the tool", async () => {
  expect(await called(HOST, PATTERN, "a is wrong")).toMatchObject({
    runs: 0,
    ran: false,
    output: { status: "failure", failure: { code: "invalid_tool_args", message: "a is wrong" } },
  });
});
