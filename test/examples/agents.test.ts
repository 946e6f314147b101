import { execFile } from "node:child_process";
import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import type { AgentDefinition, CachePolicy, ModelOptions, ModelRetry, SessionOptions, TroupeEvent } from "troupe";
import { expect, onTestFinished, test } from "vitest";
import { NODE_ARGS } from "../support/runtime.js";

const run = promisify(execFile);
const root = fileURLToPath(new URL("../..", import.meta.url));

test("types of agents, model settings and events keep authors from what is refused at run time", () => {
  // What counts is that this file compiles: `npm run check:types`.
  expect(Object.keys(typed)).toHaveLength(8);
});

test("the first program of docs/agents.md runs and prints what its comments say", async () => {
  const guide = await readFile(join(root, "docs/agents.md"), "utf8");
  const program = /```js\n([\s\S]*?)```/.exec(guide)?.[1] ?? "";
  const promised = [...program.matchAll(/console\.log\(.*\/\/ (.*)$/gm)].map(([, printed]) => printed);
  // Inside the package, so that "troupe" is this package itself.
  const folder = await mkdtemp(join(root, "test/.agents-"));
  onTestFinished(() => rm(folder, { recursive: true, force: true }));
  await writeFile(join(folder, "program.mjs"), program);
  const { stdout, stderr } = await run(process.execPath, [...NODE_ARGS, join(folder, "program.mjs")]);
  expect(promised).toEqual(["support@3", "support@5"]);
  expect({ printed: stdout.trim().split("\n"), stderr }).toEqual({ printed: promised, stderr: "" });
});

/** Checked by the compiler: each line that is expected to be an error is one. */
const typed = {
  agent: {
    model: "small",
    instructions: "Briefly.",
    tools: ["weather"],
    plugins: [],
    limits: { maxSteps: 4 },
    budget: { maxTokens: 1 },
    canary: 0.1,
  } satisfies AgentDefinition,
  // @ts-expect-error A field that agents do not have.
  misspelt: { tool: ["weather"] } satisfies AgentDefinition,
  // @ts-expect-error A share is a number.
  canary: { canary: "10 %" } satisfies AgentDefinition,
  // @ts-expect-error An option of another library.
  maxTokens: { maxTokens: 1 } satisfies ModelOptions,
  // @ts-expect-error There is no such cause.
  cause: { on: ["5xx"] } satisfies ModelRetry,
  // @ts-expect-error There is no such place.
  place: ["middle"] satisfies CachePolicy,
  // @ts-expect-error An option that openings do not have.
  opening: { agnet: "support" } satisfies SessionOptions,
  wordsOf(event: TroupeEvent): string | undefined {
    if (event.type === "turn_stopped") return event.error.message;
    // @ts-expect-error There is no such event.
    if (event.type === "turn_vanished") return undefined;
    // @ts-expect-error Not every event has an error.
    return event.error;
  },
};
