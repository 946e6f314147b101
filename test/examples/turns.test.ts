import { execFile } from "node:child_process";
import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { ACTIVITY_TYPES, type TurnOutcome } from "troupe";
import { describe, expect, test } from "vitest";
import { NODE_ARGS } from "../support/runtime.js";

const run = promisify(execFile);
const root = fileURLToPath(new URL("../..", import.meta.url));

/** What each example prints, to the letter. */
const EXAMPLES: Readonly<Record<string, string>> = {
  streaming: `(The tool knows.)
weather {"city":"Oslo"}
It is sunny in Oslo.
finished after 2 model calls
`,
  progress: `… { asking: 3, of: 'stations' }
Rain in Oslo, says the airport.
Rain in Oslo, say three stations.
Take an umbrella.
`,
  steering: `The hostel has a bed.
user: Find me a bed.
user: Only the cheap ones, please.
assistant: The hostel has a bed.
user: And breakfast?
assistant: You said: And breakfast?
`,
  tenants: `a finished
b finished
c budget_spent
It is open. 3000 { maxTokens: 5000, period: 'day' }
`,
  cancelling: `{
  type: 'stopped',
  reason: 'cancelled',
  code: 'cancelled',
  message: 'It is raining.'
}
{ status: 'success', value: 'stopped at two metres' }
Dry, so far.
`,
  stopping: `cancelled
stopped idle
[ { type: 'text', text: 'One, two, ' } ] true
ended unknown
`,
  approving: `The answer was: 20 paid back
Pay 300 back?
counted
The answer was: 300 paid back
Pay 9000 back?
counted
The answer was: [Tool execution failed]
approval_denied: The call of refund was not approved: Refunds end at 1,000.
`,
  approval: `The answer was: paid
The answer was: [Tool execution failed]
declined: 9000 is too much.
`,
  "structured-result": `{ city: 'Oslo', celsius: 4, text: '4 °C in Oslo', toolName: 'report' }
`,
  output: `4 °C in Oslo
`,
  asking: `A cat. true
invalid_input: The turn's input cannot be used: attachments from elsewhere.example are not allowed here.
`,
  spending: `The session has spent 2000 of its 2000 tokens.
Found it. { tokens: 3000, cost: 0.0126 }
2700 + 300 tokens
`,
  reloading: `t1 1 Let me look. 
Let me look. There is a bed.
There is a bed.
null true false
`,
  compacting: `threshold: 10 messages are 3 now
user: Four of the harbour's twelve berths are free from May on.
user: Which berths are free? (5)
assistant: The harbour has twelve berths, and four are free from May
turn, compaction
`,
  watching: `You said: one
You said: two
`,
};

describe.each(Object.entries(EXAMPLES))("the example %s", (name, printed) => {
  test("runs without a key and prints what it should", async () => {
    const program = join(root, `dist/examples/host/${name}.js`);
    const { stdout, stderr } = await run(process.execPath, [...NODE_ARGS, program]);
    expect({ stdout, stderr }).toEqual({ stdout: printed, stderr: "" });
  });
});

describe("docs/turns.md", async () => {
  const guide = await readFile(join(root, "docs/turns.md"), "utf8");
  const blocks = [...guide.matchAll(/```ts\n([\s\S]*?)```/g)].map(([, code]) => code as string);
  const named = blocks.map((code) => /^\/\/ examples\/host\/(\S+)\.ts\n([\s\S]*)$/.exec(code) ?? [code, code, code]);

  test.each(named.map(([, name, code]) => [name as string, code as string]))(
    "shows %s as it stands in the example",
    async (name, code) => {
      expect(await readFile(join(root, `examples/host/${name}.ts`), "utf8")).toContain(code);
    },
  );

  test("shows something of every example", () => {
    expect([...new Set(named.map(([, name]) => name))].sort()).toEqual(Object.keys(EXAMPLES).sort());
  });

  test.each(ACTIVITY_TYPES)("explains the activity %s", (type) => {
    expect(rowsOf("What activities say")).toContain(type);
  });

  const reasons: Readonly<Record<Extract<TurnOutcome, { type: "stopped" }>["reason"], true>> = {
    budget: true,
    cancelled: true,
    deadline: true,
    incomplete: true,
    invalid_input: true,
    invalid_output: true,
    max_turns: true,
    provider_error: true,
    plugin_abort: true,
    runtime_error: true,
    submitted_error: true,
    tool_error: true,
  };
  const outcomes: Readonly<Record<TurnOutcome["type"], true>> = { finished: true, frame_switch: true, stopped: true };

  test.each([...Object.keys(outcomes), ...Object.keys(reasons)])("explains the outcome %s", (outcome) => {
    expect(rowsOf("How a turn ends")).toContain(outcome);
  });

  /** What stands in the first column of a section's tables, word by word. */
  function rowsOf(title: string): string[] {
    const section = guide.split(/^## /m).find((part) => part.startsWith(`${title}\n`)) ?? "";
    return [...section.matchAll(/^\| (`[^|]*) \|/gm)].flatMap(([, cell = ""]) =>
      [...cell.matchAll(/`([^`]*)`/g)].map(([, word = ""]) => word),
    );
  }
});
