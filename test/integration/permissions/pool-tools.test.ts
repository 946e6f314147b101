import { join } from "node:path";
import { type PoolToolEntry, scriptedModel } from "troupe";
import { expect, onTestFinished, test } from "vitest";
import { type Attempt, addTool, attempt, makeApp } from "../../support/apps.js";
import { fixture, refusalOf, startTroupe } from "../../support/runtime.js";

const DENIED = "ERR_ACCESS_DENIED";

/** What a tool of the pool finds it may do. */
const may = async (entry: Omit<PoolToolEntry, "module">, attempts: readonly Attempt[], app?: string) =>
  attempt({ tools: { attempt: { module: addTool(app ?? (await makeApp())), ...entry } } }, attempts);

test("a tool of the pool reads what lies beside it, and neither dotfiles nor the store nor the working directory", async () => {
  const app = await makeApp({ "notes.txt": "notes", ".env": "SECRET=1" });
  const path = join(app, "data");
  const outcome = await attempt({ tools: { attempt: { module: addTool(app) } }, store: { path } }, [
    ["read", join(app, "notes.txt")],
    ["read", join(app, ".env")],
    ["read", join(path, "data.mdb")],
    ["read", join(process.cwd(), "LICENSE")],
    ["write", join(app, "notes.txt")],
    ["process"],
    ["thread"],
    ["addon", join(app, "notes.txt")],
    ["environment"],
  ]);
  const denied = [DENIED, DENIED, DENIED, DENIED, DENIED, DENIED, "ERR_DLOPEN_DISABLED"];
  expect(outcome).toEqual(["notes", ...denied, []]);
});

test("a tool of the pool may do what its entry grants, and no other tool may", async () => {
  const place = await makeApp({ "a.txt": "a" });
  const file = join(place, "a.txt");
  const granted = { permissions: { read: [file] } };
  expect(
    await may(granted, [
      ["read", file],
      ["write", file],
    ]),
  ).toEqual(["a", DENIED]);
  expect(
    await may({ permissions: { write: [file] } }, [
      ["read", file],
      ["write", file],
    ]),
  ).toEqual([DENIED, "written"]);
  expect(await may({ permissions: { childProcess: true } }, [["process"], ["read", file]])).toEqual(["run", DENIED]);
  expect(await may({ permissions: "all" }, [["read", file]])).toEqual(["written"]);
});

test("a tool of the pool can neither signal its process nor read its report nor change what all threads share", async () => {
  const attempts = [["signal", "SIGUSR1"], ["report"], ["priority"]] as const;
  expect(await may({}, attempts)).toEqual(["process_wide", "undefined", "process_wide"]);
});

test("tools of the pool share threads only with tools that may do the same", async () => {
  const module = fixture("tools/thread-id.mjs");
  const tools = { one: { module }, two: { module }, other: { module, permissions: { worker: true } } };
  const steps = Object.keys(tools).map((tool) => ({ toolCalls: [{ tool, args: {} }] }));
  const model = scriptedModel({ turns: [[...steps, { text: "done" }]] });
  const troupe = await startTroupe({ sessionWorkers: 1, toolThreads: 1, tools, model });
  const { toolCalls } = await (await troupe.session("s")).turn("go");
  const [one, two, other] = toolCalls.map(({ output }) => output.status === "success" && output.value);
  expect(two).toBe(one);
  expect(other).not.toBe(one);
});

test("a tool of the pool has the environment its entry gives it and the variables it names, and no other", async () => {
  process.env.TROUPE_TEST_GRANTED = "1";
  onTestFinished(() => {
    delete process.env.TROUPE_TEST_GRANTED;
  });
  const entry = { env: { API_URL: "http://127.0.0.1" }, permissions: { env: ["TROUPE_TEST_GRANTED"] } };
  expect(await may(entry, [["environment"]])).toEqual([["API_URL", "TROUPE_TEST_GRANTED"]]);
});

const withOptions = (options?: unknown) => ({
  sessionWorkers: 1,
  model: scriptedModel({ turns: [[{ toolCalls: [{ tool: "measure", args: {} }] }, { text: "done" }]] }),
  tools: { measure: { module: fixture("tools/with-options.mjs"), options } },
});

test("a tool of the pool has the options of its entry", async () => {
  const troupe = await startTroupe(withOptions({ unit: "m" }));
  const { toolCalls } = await (await troupe.session("s")).turn("go");
  expect(toolCalls[0]?.output).toMatchObject({ value: { unit: "m" } });
});

test("options of a tool that do not fit its schema, or cannot cross a thread, refuse the start", async () => {
  for (const options of [undefined, { unit: 1 }, { unit: () => "m" }])
    expect((await refusalOf(startTroupe(withOptions(options)))).code).toBe("tool_options_invalid");
});

test.each([
  [{ env: { A: 1 } }, 'the env of tool attempt must be an object of strings, such as { API_URL: "https://…" }.'],
  [{ permissions: [] }, 'the permissions of tool attempt must be "all" or an object such as { read: ["./data"] }.'],
])("an entry of a tool that means nothing is refused: %j", async (entry, message) => {
  expect(await refusalOf(may(entry as never, []))).toMatchObject({ code: "invalid_options", message });
});

test("options of a tool that is a closure of the host are refused: they are for the pool", async () => {
  const tool = { description: "It", inputSchema: {}, options: {}, execute: () => "" };
  expect((await refusalOf(startTroupe({ tools: { tool } }))).code).toBe("invalid_tool");
});

test("network: false holds for a tool where Node can enforce it, and refuses the start where it cannot", async () => {
  const outcome = await may({ permissions: { network: false } }, [["fetch", "http://127.0.0.1:65535"]]).catch(
    ({ code }) => code,
  );
  const enforced = process.allowedNodeEnvironmentFlags.has("--allow-net");
  expect(outcome).toEqual(enforced ? [DENIED] : "isolation_unenforceable");
});
