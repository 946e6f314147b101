import { execFile } from "node:child_process";
import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";
import { promisify } from "node:util";
import { type Activity, createTroupe, scriptedModel, type TroupeOptions, type TurnResult } from "troupe";
import { HOOK_HOSTS, HOOK_KINDS, type HookName } from "troupe/plugin";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import {
  collect,
  EMPTY_OBJECT,
  firstToolValue,
  fixture,
  NODE_ARGS,
  oneToolCall,
  plugin,
  startTroupe,
  tempFolder,
} from "../support/runtime.js";

const run = promisify(execFile);
const root = fileURLToPath(new URL("../..", import.meta.url));
const example = (name: string) => new URL(`../../dist/examples/plugins/${name}.js`, import.meta.url);

/** A host that uses one of the examples as anybody would: by URL, on its own thread. */
const withExample = (name: string, options: object = {}, host: TroupeOptions = {}) =>
  startTroupe({ sessionWorkers: 2, plugins: [{ module: example(name), options }], ...host });

const ran = { description: "d", inputSchema: EMPTY_OBJECT, execute: () => "ran" } as const;

/** Success, or the code of the failure, for each call of a turn. */
const endings = ({ toolCalls }: Pick<TurnResult, "toolCalls">) =>
  toolCalls.map(({ output }) => (output.status === "failure" ? output.failure.code : output.status));

const streamed = (activities: readonly Activity[]) =>
  activities.map((activity) => (activity.type === "text_delta" ? activity.text : "")).join("");

const eventsOf = (activities: readonly Activity[]) =>
  activities.flatMap((activity) => (activity.type === "plugin_event" ? [activity.event] : []));

describe("the budget example", () => {
  const threeCalls = scriptedModel({
    turns: [[{ toolCalls: Array.from({ length: 3 }, () => ({ tool: "work", args: {} })) }, { text: "done" }]],
  });
  const host = { model: threeCalls, tools: { work: ran } };

  test("denies what is over the budget of a turn, and the next turn has a budget of its own", async () => {
    const troupe = await withExample("budget", { perTurn: 2 }, host);
    const session = await troupe.session("s");
    const first = await session.turn("hi");
    expect(endings(first)).toEqual(["success", "success", "turn_budget_exhausted"]);
    expect(first.outcome).toEqual({ type: "finished", text: "done" });
    expect(endings(await session.turn("again"))).toEqual(["success", "success", "turn_budget_exhausted"]);
  });

  test("denies what is over the budget of the session, and a fork does not get another one", async () => {
    const troupe = await withExample("budget", { perSession: 4 }, host);
    const parent = await troupe.session("parent");
    await parent.turn("three calls");
    const child = await parent.fork({ id: "child" });
    const spent = ["success", "session_budget_exhausted", "session_budget_exhausted"];
    expect(endings(await child.turn("one is left"))).toEqual(spent);
    expect(endings(await parent.turn("one is left here too"))).toEqual(spent);
  });

  test("counts a call once although a later plugin's new arguments make it look twice", async () => {
    const troupe = await startTroupe({
      plugins: [
        { module: example("budget"), options: { perSession: 2 } },
        { module: plugin("scriptable"), options: { beforeToolCall: "replaceArgs" } },
      ],
      tools: { work: ran },
      model: threeCalls,
    });
    const result = await (await troupe.session("s")).turn("hi");
    expect(endings(result)).toEqual(["success", "success", "session_budget_exhausted"]);
  });

  test("does not start with options that make no sense", async () => {
    await expect(withExample("budget", { perTurn: -1 })).rejects.toMatchObject({ code: "plugin_options_invalid" });
  });
});

describe("the redaction example", () => {
  const saying = (...chunks: string[]) => scriptedModel({ turns: [[{ chunks, chunkDelayMs: 5 }]] });

  test.each([
    ["a card number in one chunk", ["Pay with 4111111111111111, please."], "Pay with [redacted], please."],
    [
      "a card number split over four chunks",
      ["Pay with 4111 ", "1111", " 11", "11 1111, please."],
      "Pay with [redacted], please.",
    ],
    [
      "a key cut within its prefix",
      ["The key s", "k", "-abcdefgh", "ijklmnop1234 works."],
      "The key [redacted] works.",
    ],
    ["two secrets", ["4111-1111-1111-", "1111 or sk-0123456789", "abcdef?"], "[redacted] or [redacted]?"],
  ])("masks %s in the stream and in the answer", async (_what, chunks, expected) => {
    const troupe = await withExample("redaction", {}, { model: saying(...chunks) });
    const turn = (await troupe.session("s")).turn("hi");
    const activities = await collect(turn);
    expect(streamed(activities)).toBe(expected);
    expect((await turn).text).toBe(expected);
    expect(eventsOf(activities)).toContainEqual({ name: "redacted" });
  });

  test("lets everything else through as it was said", async () => {
    const chunks = ["In 20", "26 she as", "ks for s", "ome sk", "y, 3 tasks", " and 12 34 more."];
    const troupe = await withExample("redaction", {}, { model: saying(...chunks) });
    const turn = (await troupe.session("s")).turn("hi");
    const activities = await collect(turn);
    expect(streamed(activities)).toBe("In 2026 she asks for some sky, 3 tasks and 12 34 more.");
    expect(eventsOf(activities)).toEqual([]);
  });

  test("shows what it held back when the answer ends, masked when it is a secret", async () => {
    const chunks = ["Here: sk-", "abcdefghijklmnop"];
    const troupe = await withExample("redaction", { mask: "***" }, { model: saying(...chunks) });
    const turn = (await troupe.session("s")).turn("hi");
    expect(streamed(await collect(turn))).toBe("Here: ***");
    expect((await turn).text).toBe("Here: ***");
    const counting = await withExample("redaction", {}, { model: saying("There are ", "12") });
    expect((await (await counting.session("s")).turn("hi")).text).toBe("There are 12");
  });

  test("an answer that is held back as a whole is still the answer, also before a tool call", async () => {
    const model = scriptedModel({
      turns: [[{ text: "42", toolCalls: [{ tool: "work", args: {} }] }, { chunks: ["4", "3"] }]],
    });
    const troupe = await withExample("redaction", {}, { model, tools: { work: ran } });
    const result = await (await troupe.session("s")).turn("hi");
    expect(endings(result)).toEqual(["success"]);
    expect(result.text).toBe("43");
  });

  test("forgets the piece it held when the model call fails", async () => {
    const model = scriptedModel({
      turns: [
        [{ chunks: ["card 4111 1111", "1111"], fail: { code: "model_stream_cut", afterChunks: 1 } }],
        [{ text: "2 apples." }],
      ],
    });
    const troupe = await withExample("redaction", {}, { model });
    const session = await troupe.session("s");
    expect((await session.turn("one")).outcome).toMatchObject({ code: "model_stream_cut" });
    expect((await session.turn("two")).text).toBe("2 apples.");
  });
});

describe("the memory example", () => {
  test("tells the model in later turns what the user asked to remember", async () => {
    const troupe = await withExample("memory", {}, { model: fixture("models/show-prompt.mjs") });
    const session = await troupe.session("s");
    await session.turn("Hi! Remember that I am allergic to nuts. And remember: my cat is Bo.");
    const facts = "### What the user asked you to remember\n\n- I am allergic to nuts\n- my cat is Bo";
    expect(JSON.parse((await session.turn("What can I eat?")).text).conversation.slice(-2)).toEqual([
      ["user", "What can I eat?"],
      ["user", `<context from="runtime">\n## Environment\n\n${facts}\n</context>`],
    ]);
  });

  test("a fork remembers what its parent did, and what it learns is its own", async () => {
    const troupe = await withExample("memory", {}, { model: oneToolCall("recall") });
    const parent = await troupe.session("parent");
    await parent.turn("Remember that the code is blue.");
    const child = await parent.fork({ id: "child" });
    expect(firstToolValue(await child.turn("Remember that the door is red."))).toEqual([
      "the code is blue",
      "the door is red",
    ]);
    expect(firstToolValue(await parent.turn("And you?"))).toEqual(["the code is blue"]);
  });

  test("remembers after a restart of the host", async () => {
    const options = {
      plugins: [{ module: example("memory") }],
      model: oneToolCall("recall", { about: "CODE" }),
      store: { path: await tempFolder() },
    };
    const first = await createTroupe(options);
    await (await first.session("s")).turn("Remember that the code is blue. Remember that I like tea.");
    await first.close();
    const second = await startTroupe(options);
    expect(firstToolValue(await (await second.session("s")).turn("Which code?"))).toEqual(["the code is blue"]);
  });

  test("forgets what it is told to, and the oldest beyond its limit", async () => {
    const model = scriptedModel({
      turns: [[{ toolCalls: [{ tool: "forget", args: { about: "tea" } }] }, { toolCalls: [{ tool: "recall" }] }]],
    });
    const troupe = await withExample("memory", { max: 2 }, { model });
    const input = "Remember that I am Ada. Remember that I like tea. Remember that I am 36.";
    const { toolCalls } = await (await troupe.session("s")).turn(input);
    expect(toolCalls.map(({ output }) => output)).toEqual([
      { status: "success", value: { forgotten: ["I like tea"] } },
      { status: "success", value: ["I am 36"] },
    ]);
  });
});

describe("the approval example", () => {
  const host = { tools: { shell: ran, delete_all: ran, read: ran } };

  test("denies a dangerous tool and tells the host what was asked for", async () => {
    const troupe = await withExample("approval", {}, { ...host, model: oneToolCall("shell") });
    const turn = (await troupe.session("s")).turn("hi");
    const activities = await collect(turn);
    expect(endings(await turn)).toEqual(["not_approved"]);
    expect(eventsOf(activities)).toEqual([{ name: "approval_needed", payload: { tool: "shell", args: {} } }]);
  });

  test("lets what the host allowed run, by name or by the beginning of it", async () => {
    const model = scriptedModel({
      turns: [[{ toolCalls: ["shell", "delete_all"].map((tool) => ({ tool, args: {} })) }, { text: "done" }]],
    });
    const named = await withExample("approval", { allowed: ["shell"] }, { ...host, model });
    expect(endings(await (await named.session("s")).turn("hi"))).toEqual(["success", "not_approved"]);
    const starred = await withExample("approval", { allowed: ["shell", "delete_*"] }, { ...host, model });
    expect(endings(await (await starred.session("s")).turn("hi"))).toEqual(["success", "success"]);
  });

  test("a dry run answers for an allowed tool, which does not run, and still denies the others", async () => {
    let runs = 0;
    const counted = { ...ran, execute: () => ++runs };
    const model = scriptedModel({
      turns: [[{ toolCalls: ["shell", "delete_all"].map((tool) => ({ tool, args: {} })) }, { text: "done" }]],
    });
    const troupe = await withExample(
      "approval",
      { allowed: ["shell"], dryRun: true },
      { tools: { shell: counted, delete_all: counted }, model },
    );
    const result = await (await troupe.session("s")).turn("hi");
    expect(firstToolValue(result)).toEqual({ dryRun: true, wouldRun: "shell", args: {} });
    expect(endings(result)).toEqual(["success", "not_approved"]);
    expect(runs).toBe(0);
  });

  test("is not asked about harmless tools at all", async () => {
    const troupe = await withExample("approval", {}, { ...host, model: oneToolCall("read") });
    expect(endings(await (await troupe.session("s")).turn("hi"))).toEqual(["success"]);
    expect((await troupe.stats()).hookMessages).toEqual({ sent: 0, received: 0 });
  });
});

describe("the audit example", () => {
  test("counts how turns and tool calls ended, and tells the host of each call that ran", async () => {
    const model = scriptedModel({
      turns: [
        [
          {
            toolCalls: [
              { tool: "work", args: {} },
              { tool: "fails", args: {} },
              { tool: "shell", args: {} },
            ],
          },
        ],
        [{ text: "no", finish: "content_filter" }],
        [{ toolCalls: [{ tool: "audit_report" }] }, { text: "done" }],
      ],
    });
    const fails = {
      ...ran,
      execute: () => {
        throw new Error("broken");
      },
    };
    const troupe = await startTroupe({
      plugins: [{ module: example("approval") }, { module: example("audit") }],
      tools: { work: ran, fails, shell: ran },
      model,
    });
    const session = await troupe.session("s");
    const activities = await collect(session.turn("one"));
    // The denied call never ran; the turn's summary has it nevertheless.
    expect(eventsOf(activities).filter(({ name }) => name === "tool_ran")).toEqual([
      { name: "tool_ran", payload: { tool: "work", status: "success" } },
      { name: "tool_ran", payload: { tool: "fails", status: "failure" } },
    ]);
    await session.turn("two");
    expect(firstToolValue(await session.turn("three"))).toEqual({
      turns: { finished: 1, provider_error: 1 },
      toolCalls: { success: 1, failure: 2 },
      slowestToolMs: expect.any(Number),
      lastStoredRevision: 3, // What it noted of the first turn was stored by itself.
    });
  });

  test("what it noted after the last turn was stored is there after a restart", async () => {
    const options = {
      plugins: [{ module: example("audit") }],
      model: oneToolCall("audit_report"),
      store: { path: await tempFolder() },
    };
    const first = await createTroupe(options);
    await (await first.session("s")).turn("one");
    await first.close();
    const second = await startTroupe(options);
    expect(firstToolValue(await (await second.session("s")).turn("two"))).toMatchObject({
      turns: { finished: 1 },
      toolCalls: { success: 1 },
      lastStoredRevision: 1,
    });
  });
});

describe("docs/plugins.md", async () => {
  const guide = await readFile(join(root, "docs/plugins.md"), "utf8");
  /** The blocks that name themselves: `// plugin: budget.js`. */
  const blocksOf = (what: "plugin" | "protocol" | "program") =>
    [...guide.matchAll(new RegExp(`\`\`\`ts\\n(// ${what}: (\\S+)\\n[\\s\\S]*?)\`\`\``, "g"))].map(
      ([, code, name]) => [name as string, code as string] as const,
    );
  const blocks = blocksOf("plugin");
  let folder: string;
  beforeAll(async () => {
    // Inside the package, so that "troupe/plugin" is this package itself.
    folder = await mkdtemp(join(root, "test/.docs-"));
  });
  afterAll(() => rm(folder, { recursive: true, force: true }));

  /** A folder for each: two examples may have one name. */
  async function written(name: string, code: string): Promise<URL> {
    const file = join(await mkdtemp(join(folder, "plugin-")), name.replace(/\.\w+$/, ".mjs"));
    await writeFile(file, code);
    return pathToFileURL(file);
  }

  /** What tools and operations of the examples want, all in one: each takes its own. */
  const ARGS = {
    city: "Oslo",
    command: "ls",
    text: "milk",
    question: "Why?",
    numbers: [1, 2],
    tools: ["shell"],
    on: false,
  };
  const tools = {
    weather: {
      description: "The weather in a city",
      inputSchema: { type: "object", properties: { city: { type: "string" } }, required: ["city"] },
      execute: (args: unknown) => `sunny in ${(args as { city: string }).city}`,
    },
    shell: { description: "Runs a command", inputSchema: { type: "object" }, execute: () => "README.md" },
  } as const;
  /** Every tool the examples speak of is called, then there is an answer that is not streamed. */
  const calling = (...names: string[]) =>
    scriptedModel({
      turns: [
        [
          { text: "Let me look.", toolCalls: names.map((tool) => ({ tool, args: ARGS })) },
          { text: "It is sunny.", stream: false },
        ],
      ],
    });

  test.each(blocks)("the example %s runs as it stands there, all it contributes included", async (name, code) => {
    const module = await written(name, code);
    const { id, tools: own = {} } = (await import(module.href)).default as { id: string; tools?: object };
    const model = calling("weather", "shell", ...Object.keys(own));
    const troupe = await startTroupe({ sessionWorkers: 1, plugins: [{ module }], tools, model });
    const session = await troupe.session("s");
    const result = await session.turn("What is the weather in 2 days?");
    expect(result.outcome.type).toBe("finished");
    expect(result.issues).toEqual([]);
    expect(endings(result).slice(2)).toEqual(Object.keys(own).map(() => "success"));
    expect(endings(result)).not.toContain("before_tool_call_failed");
    expect(endings(result)).not.toContain("after_tool_call_failed");
    expect((await session.configure({ instructions: "Be brief.", maxSteps: 99 })).issues).toEqual([]);
    expect(await session.compact()).toBe(hooksIn(code).includes("contextCompactor"));
    for (const { kind, name: operation } of (await session.surface()).operations) {
      if (kind === "action") expect(await session.action(operation, ARGS)).toMatchObject({ status: "success" });
      else await session[kind](operation, ARGS);
    }
    expect(Object.keys((await troupe.stats()).hooks).sort()).toEqual(
      hooksIn(code)
        .map((hook) => `plugin_hook.${HOOK_KINDS[hook]}.${id}`)
        .sort(),
    );
    // What it keeps can be stored and read again.
    await session.close();
    expect((await (await troupe.session("s")).turn("And now?")).issues).toEqual([]);
  });

  test.each(blocksOf("protocol"))("the protocol %s runs as it stands there", async (name, code) => {
    const protocol = { module: await written(name, code) };
    const model = scriptedModel({ turns: [[{ text: 'CALL weather {"city":"Oslo"}' }, { text: "It is sunny." }]] });
    const troupe = await startTroupe({ sessionWorkers: 1, protocol, tools, model });
    const session = await troupe.session("s");
    const result = await session.turn("What is the weather?");
    expect(firstToolValue(result)).toBe("sunny in Oslo");
    expect(result.outcome).toEqual({ type: "finished", text: "It is sunny." });
    // The input, the line, what was observed, the answer.
    expect((await session.view()).messageCount).toBe(4);
  });

  test.each(blocksOf("protocol"))("the protocol %s tells the model what its turn options say", async (name, code) => {
    const troupe = await startTroupe({
      sessionWorkers: 1,
      protocol: { module: await written(name, code) },
      plugins: [{ module: plugin("creates-child") }],
      tools,
      model: fixture("models/show-prompt.mjs"),
    });
    const promptOf = async (turn: PromiseLike<TurnResult>) => JSON.parse((await turn).text).system;
    const list = "- shell: Runs a command\n- weather: The weather in a city";
    const plain = `## Execution\n\nTo use a tool, write a line like this: CALL name {"argument":"value"}\n${list}`;
    const terse = `${plain}\n\n## Guidance\n\nAnswer in one sentence.`;
    const root = await troupe.session("root");
    expect(await promptOf(root.turn("Hi"))).toBe(plain);
    const protocolOptions = { schemaVersion: 1, payload: { terse: true } };
    expect(await promptOf(root.turn("Hi", { protocolOptions }))).toBe(terse);
    // A fork has what is stored with its parent; a child that begins empty has its own default.
    expect(await promptOf((await root.fork()).turn("Hi"))).toBe(plain);
    await root.command("create", { sessionId: "child" });
    expect(await promptOf((await troupe.session("child")).turn("Hi"))).toBe(terse);
    const opened = await troupe.session("other", { pluginOptions: { "acme.call-lines": { terse: true } } });
    expect(await promptOf(opened.turn("Hi"))).toBe(terse);
  });

  /** Each program, the plugin beside it, and what it prints to the letter. */
  const PROGRAMS: Readonly<Record<string, readonly [plugin: string, has: string, prints: string]>> = {
    "limited.js": ["tenant-limit.js", "looks", "a success\nb success\nc success\nd failure\n{ looks: 4 }\n"],
    "shopping.js": ["notes.js", '"notes.add"', "[ 'milk', 'eggs' ]\n3 noted\noperation_unknown\n"],
  };

  test.each(blocksOf("program"))("the program %s prints what the page says, beside its plugin", async (name, code) => {
    const own = await mkdtemp(join(folder, "program-"));
    const [beside, has, prints] = PROGRAMS[name] ?? [];
    const found = blocks.find(([known, block]) => known === beside && block.includes(has ?? ""));
    await writeFile(join(own, beside ?? ""), found?.[1] ?? "");
    await writeFile(join(own, name), code);
    const { stdout, stderr } = await run(process.execPath, [...NODE_ARGS, name], { cwd: own });
    expect({ stdout, stderr }).toEqual({ stdout: prints, stderr: "" });
  });

  test.each(Object.keys(HOOK_KINDS))("has a row and an example for %s", (hook) => {
    expect(guide).toContain(`| \`${hook}\` |`);
    expect(blocks.some(([, code]) => hooksIn(code).includes(hook as HookName))).toBe(true);
  });

  test.each(Object.keys(HOOK_KINDS))("says which host services %s is given", (hook) => {
    const table = guide.slice(guide.indexOf("### Who is given which")).split("\n\n")[1] ?? "";
    const [head, , ...rows] = table
      .split("\n")
      .map((line) => line.split(" |").map((cell) => cell.replace(/^\|?\s*/, "")));
    const row = rows.find(([who]) => who?.split(", ").includes(`\`${hook}\``)) ?? [];
    const given = (head ?? []).filter((_, column) => row[column] === "yes").map((name) => name.replaceAll("`", ""));
    expect(given.sort()).toEqual([...HOOK_HOSTS[HOOK_KINDS[hook as HookName]]].sort());
  });
});

/** The hooks a block of code has, by their names: declared, or registered. */
function hooksIn(code: string): HookName[] {
  return (Object.keys(HOOK_KINDS) as HookName[]).filter((name) =>
    new RegExp(`^\\s+(async )?${name}(\\(|: )|\\.hook\\("${name}"`, "m").test(code),
  );
}
