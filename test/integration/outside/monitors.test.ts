import { appendFile, mkdir, rename, symlink, truncate, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { scriptedModel, type Troupe } from "troupe";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { isAlive, kindred } from "../../support/pids.js";
import { plugin, startTroupe, tempFolder, until } from "../../support/runtime.js";
import { linesOf, Watching } from "../../support/watching.js";

const QUICK = { debounceMs: 20, maxPerMinute: 600 } as const;
const PLUGINS = [{ module: plugin("watches"), permissions: "all" as const }];
const said = (lines: string, more = "sleep 1000") => ["sh", "-c", `printf '${lines}'; ${more}`];

// §15.76
describe("a monitor", () => {
  let troupe: Troupe;
  let gauge = "0";
  let nth = 0;
  const gauged: string[] = [];

  beforeAll(async () => {
    const { createTroupe } = await import("troupe");
    troupe = await createTroupe({
      sessionWorkers: 1,
      plugins: [
        ...PLUGINS,
        { module: plugin("watches-too"), permissions: { processes: true, env: ["TROUPE_TEST_GIVEN"] } },
      ],
      tools: {
        gauge: {
          description: "Says how much",
          inputSchema: { type: "object" },
          execute: (_args, { sessionId }) => {
            gauged.push(sessionId);
            return gauge;
          },
        },
        broken: {
          description: "Fails",
          inputSchema: { type: "object" },
          execute: () => {
            throw new Error("no");
          },
        },
        asked: { description: "Asks", inputSchema: { type: "object" }, approval: true, execute: () => "done" },
      },
    });
  });
  afterAll(() => troupe.close());

  const open = () => Watching.in(troupe, `m${++nth}`);

  test("tells the lines of a command that match its pattern, and how the command ended", async () => {
    const s = await open();
    const argv = said("one\\ntwo error\\nthree Error\\n", "echo beside >&2; exit 3");
    await s.start({ id: "build", argv, pattern: "error", ignoreCase: true, ...QUICK });
    const updates = await s.takeUntil("it has ended", ({ end }) => end !== undefined);
    expect(linesOf(updates)).toEqual(["two error", "three Error"]);
    expect(updates.at(-1)?.end).toEqual({ reason: "exit", exitCode: 3, signal: null, stderr: "beside" });
    expect(updates.map(({ sequence }) => sequence)).toEqual(updates.map((_, n) => n + 1));
    expect(await s.status("build")).toMatchObject({ state: "ended", starts: 1, told: 2, waiting: 0 });
  });

  test("that is stopped ends everything its command started", async () => {
    const s = await open();
    const { monitors } = await s.start({ id: "pids", argv: ["sh", "-c", "sleep 1000 & echo $$ $!; wait"], ...QUICK });
    expect(monitors).toMatchObject([{ id: "pids", label: "pids", state: "running", starts: 1 }]);
    const updates = await s.takeUntil("it said its ids", ({ text }) => text !== "");
    const pids = linesOf(updates)[0]?.split(" ").map(Number) as number[];
    expect(pids.map(isAlive)).toEqual([true, true]);
    const { activeCount } = await s.stop("pids");
    expect([activeCount, pids.map(isAlive)]).toEqual([0, [false, false]]);
    expect(await s.stop("pids")).toMatchObject({ monitors: [{ end: { reason: "stopped" } }] });
  });

  test("follows a file that grows, is cut, is replaced, and is not there for a while", async () => {
    const s = await open();
    const file = join(await tempFolder(), "app.log");
    await writeFile(file, "before\n");
    await s.start({ id: "log", file, ...QUICK });
    await appendFile(file, "one\ntw");
    await s.takeUntil("the first line came", ({ text }) => text.includes("one"));
    await appendFile(file, "o\n");
    expect(linesOf(await s.takeUntil("the second line came", ({ text }) => text.includes("two")))).toEqual(["two"]);
    await truncate(file, 0);
    await appendFile(file, "cut\n");
    expect(linesOf(await s.takeUntil("it was cut", ({ text }) => text.includes("cut")))).toEqual(["cut"]);
    await appendFile(file, "last of the old\n");
    await rename(file, `${file}.1`);
    await writeFile(file, "first of the new\n");
    const updates = await s.takeUntil("the new one came", ({ text }) => text.includes("new"));
    expect(linesOf(updates)).toEqual(["last of the old", "first of the new"]);
    await s.stop("log");
  });

  test("waits for a file that is not there, and can tell one from its beginning", async () => {
    const s = await open();
    const folder = await tempFolder();
    const [late, early] = [join(folder, "late", "x.log"), join(folder, "early.log")];
    await writeFile(early, "a\nb\n");
    await s.start({ id: "late", file: late, ...QUICK });
    await s.start({ id: "early", file: early, from: "start", ...QUICK });
    expect(linesOf(await s.takeUntil("it was read", ({ text }) => text.includes("b")))).toEqual(["a", "b"]);
    await mkdir(join(folder, "late"));
    await writeFile(late, "there\n");
    expect(linesOf(await s.takeUntil("it came", ({ text }) => text !== ""))).toEqual(["there"]);
  });

  test("of a tool tells what it answers, and only what is something else than before; no model is asked", async () => {
    const s = await open();
    gauge = "1";
    await s.start({ id: "gauge", tool: "gauge", everyMs: 100, ...QUICK });
    await s.takeUntil("the first answer came", ({ text }) => text === "1");
    const before = gauged.length;
    await until("it was run three times more", () => gauged.length > before + 2);
    gauge = "2";
    const updates = await s.takeUntil("it changed", ({ text }) => text === "2");
    expect(linesOf(updates)).toEqual(["2"]);
    expect(new Set(gauged)).toEqual(new Set([s.session.id]));
    expect((await s.session.info()).turns).toBe(0);
    await s.stop("gauge");
  });

  test("of a tool that fails, has to be approved or is not there ends and says why", async () => {
    const s = await open();
    await s.start({ id: "broken", tool: "broken", everyMs: 100, ...QUICK });
    await s.start({ id: "asked", tool: "asked", everyMs: 100, ...QUICK });
    await s.start({ id: "none", tool: "nothing_such", everyMs: 100, ...QUICK });
    await until(
      "all have ended",
      async () =>
        (await s.ask(["monitorSnapshot"]))[0]?.value !== undefined &&
        (await s.status("broken"))?.end != null &&
        (await s.status("none"))?.end != null,
    );
    const ends = await Promise.all(["broken", "asked", "none"].map(async (id) => (await s.status(id))?.end?.error));
    expect(ends).toMatchObject([
      { code: "monitor_tool_failed", message: expect.stringContaining("broken failed") },
      { code: "monitor_tool_failed", message: expect.stringContaining("has to be approved") },
      { code: "monitor_tool_failed", message: expect.stringContaining("There is no tool") },
    ]);
  });

  test("ends after so many lines, and tells no more than those", async () => {
    const s = await open();
    await s.start({ id: "few", argv: ["yes"], until: { lines: 3 }, ...QUICK });
    const updates = await s.takeUntil("it has ended", ({ end }) => end !== undefined);
    expect([linesOf(updates), updates.at(-1)?.end]).toEqual([["y", "y", "y"], { reason: "lines" }]);
  });

  test("ends at a line that matches, whatever is told, and with its time", async () => {
    const s = await open();
    const argv = said("a\\nREADY\\nb\\n");
    await s.start({ id: "ready", argv, pattern: "^[a-z]$", until: { pattern: "^READY$" }, ...QUICK });
    await s.start({ id: "time", argv: ["sleep", "1000"], until: { deadlineMs: 50 }, ...QUICK });
    const all = await s.takeUntil("the time is over", ({ end }) => end?.reason === "deadline");
    const updates = [...all, ...(await s.take())];
    expect(linesOf(updates)).toEqual(["a"]);
    await until("both have ended", async () => (await s.status("ready"))?.end?.reason === "pattern");
  });

  test("that says more than it may is bounded, and says what was lost", async () => {
    const s = await open();
    const argv = ["sh", "-c", "n=0; while [ $n -lt 20000 ]; do echo line $n; n=$((n+1)); done"];
    await s.start({ id: "flood", argv, ...QUICK });
    const updates = await s.takeUntil("it has ended", ({ end }) => end !== undefined);
    const told = updates.reduce((sum, { lines }) => sum + lines, 0);
    const dropped = updates.reduce((sum, update) => sum + update.dropped, 0);
    expect(told + dropped).toBe(20_000);
    expect(dropped).toBeGreaterThan(0);
    expect(Math.max(...updates.map(({ lines }) => lines))).toBeLessThanOrEqual(100);
    expect(linesOf(updates).at(-1)).toBe("line 19999");
  });

  test("that says without end hinders nobody: another is told as ever, and it can be stopped", async () => {
    const s = await open();
    const file = join(await tempFolder(), "calm.log");
    await writeFile(file, "");
    await s.start({ id: "endless", argv: ["yes"], maxPerMinute: 600 });
    await s.start({ id: "calm", file, ...QUICK });
    await s.takeUntil("much was lost", ({ dropped }) => dropped > 1_000);
    await appendFile(file, "calm\n");
    const updates = await s.takeUntil("the other is told", ({ monitorId }) => monitorId === "calm");
    expect(linesOf(updates.filter(({ monitorId }) => monitorId === "calm"))).toEqual(["calm"]);
    await s.stop("endless");
    await s.stop("calm");
  });

  test("with a pattern that never ends is ended, and the others go on", async () => {
    const s = await open();
    const file = join(await tempFolder(), "evil.log");
    await writeFile(file, "");
    await s.start({ id: "evil", file, pattern: "^(a+)+$", ...QUICK });
    await s.start({ id: "good", file, ...QUICK });
    await appendFile(file, `${"a".repeat(60)}b\n`);
    const updates = await s.takeUntil(
      "it has ended",
      ({ monitorId, end }) => monitorId === "evil" && end !== undefined,
    );
    const [end] = updates.flatMap(({ end }) => (end === undefined ? [] : [end]));
    expect(end).toMatchObject({ reason: "failed", error: { code: "monitor_pattern_slow" } });
    await appendFile(file, "fine\n");
    const good = await s.takeUntil("the other goes on", ({ text }) => text.includes("fine"));
    expect(linesOf(good)).toContain("fine");
  });

  test("whose command is to be started again is, and its next update says so", async () => {
    const s = await open();
    await s.start({ id: "again", argv: ["echo", "up"], onExit: "restart", ...QUICK });
    const first = await s.takeUntil("it is up", ({ text }) => text === "up");
    const second = await s.takeUntil("it is up again", ({ text }) => text === "up");
    expect([first, second].map(([update]) => update?.restarted)).toEqual([false, true]);
    await s.stop("again");
  });

  test("gives each update once, also to two who take at the same time", async () => {
    const s = await open();
    await s.start({ id: "many", argv: ["seq", "1", "50"], debounceMs: 1, maxPerMinute: 600 });
    const all = (
      await Promise.all(
        Array.from({ length: 4 }, async () => {
          const taken = [];
          for (let n = 0; n < 15; n++) taken.push(...(await s.take()));
          return taken;
        }),
      )
    ).flat();
    await until("it has ended", async () => (await s.status("many"))?.state === "ended");
    all.push(...(await s.take()));
    const sequences = all.map(({ sequence }) => sequence).sort((a, b) => a - b);
    expect(sequences).toEqual(sequences.map((_, n) => n + 1));
    expect(
      linesOf(all)
        .map(Number)
        .sort((a, b) => a - b),
    ).toEqual(Array.from({ length: 50 }, (_, n) => n + 1));
  });

  test("asked for again with the same request is the one that goes on; with another it begins anew", async () => {
    const s = await open();
    const request = { id: "same", argv: ["sh", "-c", "echo $$; sleep 1000"], ...QUICK };
    await s.start(request);
    const [pid] = linesOf(await s.takeUntil("it runs", ({ text }) => text !== ""));
    await s.start(request);
    expect(isAlive(Number(pid))).toBe(true);
    await s.start({ ...request, label: "other" });
    expect(isAlive(Number(pid))).toBe(false);
    const updates = await s.takeUntil("the other runs", ({ text, end }) => text !== "" && end === undefined);
    expect(updates.map(({ end }) => end?.reason)).toEqual(["stopped", undefined]);
    expect((await s.status("same"))?.label).toBe("other");
    await s.stop("same");
  });

  test("is its plugin's in the session: no other plugin and no other session has it", async () => {
    const s = await open();
    await s.start({ id: "mine", argv: said("x\\n"), ...QUICK });
    await until("it has something", async () => (await s.status("mine"))?.waiting === 1);
    const nothing = [
      { value: { activeCount: 0, monitors: [] } },
      { value: { updates: [] } },
      { error: "monitor_unknown" },
    ];
    const calls = [["monitorSnapshot"], ["takeMonitorUpdates"], ["stopMonitor", "mine"]] as const;
    for (const other of [new Watching(s.session, "test.spies"), await open()])
      expect(await other.ask(...calls)).toMatchObject(nothing);
    expect(linesOf(await s.take())).toEqual(["x"]);
    await s.stop("mine");
  });

  test("can be of a session that the caller may see, named in front", async () => {
    const s = await open();
    const child = await s.session.fork({ id: `${s.session.id}/child` });
    await child.park();
    const [started] = await s.ask(["startMonitor", child.id, { id: "c", argv: said("x\\n"), ...QUICK }]);
    expect(started).toMatchObject({ value: { activeCount: 1 } });
    expect((await new Watching(child).takeUntil("it spoke", () => true)).map(({ text }) => text)).toEqual(["x"]);
    expect(await s.ask(["stopMonitor", child.id, "c"], ["monitorSnapshot"])).toMatchObject([
      { value: { activeCount: 0 } },
      { value: { monitors: [] } },
    ]);
    const stranger = await open();
    expect(await stranger.ask(["monitorSnapshot", child.id])).toMatchObject([{ error: "session_not_visible" }]);
  });

  test("asked for with something wrong is refused, in the words of the request", async () => {
    const s = await open();
    const requests: readonly unknown[] = [
      undefined,
      { argv: ["ls"] },
      { id: "", argv: ["ls"] },
      { id: "x" },
      { id: "x", argv: ["ls"], file: "/tmp/x" },
      { id: "x", file: 7 },
      { id: "x", file: "/tmp/x", everyMs: 5 },
      { id: "x", tool: "gauge" },
      { id: "x", tool: "gauge", everyMs: 1 },
      { id: "x", argv: ["ls"], pattern: "(" },
      { id: "x", argv: ["ls"], pattern: "" },
      { id: "x", argv: ["ls"], debounceMs: 0 },
      { id: "x", argv: ["ls"], maxPerMinute: 1e6 },
      { id: "x", argv: ["ls"], deliver: "always" },
      { id: "x", argv: ["ls"], until: { count: 1 } },
      { id: "x", argv: ["ls"], until: { lines: 0 } },
      { id: "x", argv: ["ls"], stream: "stdin" },
    ];
    const answers = await s.ask(...requests.map((request) => ["startMonitor", request] as const));
    expect(answers.map(({ error }) => error)).toEqual(requests.map(() => "invalid_monitor"));
    expect(answers[14]?.message).toContain("There are: lines, pattern, deadlineMs");
    const others = await s.ask(
      ["startMonitor", { id: "x", argv: "ls -l" }],
      ["startMonitor", { id: "x", argv: ["/no/such/program"] }],
      ["startMonitor", { id: "x", file: "/" }],
      ["stopMonitor", "x"],
      ["stopMonitor", 7],
    );
    expect(others.map(({ error }) => error)).toEqual([
      "invalid_process",
      "process_not_started",
      "monitor_file_unreadable",
      "monitor_unknown",
      "invalid_monitor",
    ]);
    expect(await s.ask(["monitorSnapshot"])).toEqual([{ value: { activeCount: 0, monitors: [] } }]);
  });

  test("is limited to sixteen of a session that go on", async () => {
    const s = await open();
    const answers = await s.ask(
      ...Array.from(
        { length: 17 },
        (_, n) => ["startMonitor", { id: `n${n}`, tool: "gauge", everyMs: 60_000 }] as const,
      ),
    );
    expect(answers.map(({ error }) => error)).toEqual([...Array(16).fill(undefined), "monitor_limit"]);
    await s.session.close();
  });

  test("ends with the close of its session and with its deletion, and its processes with it", async () => {
    const ends = {
      close: (s: Watching) => s.session.close(),
      delete: (s: Watching) => troupe.deleteSession(s.session.id),
    };
    for (const end of Object.values(ends)) {
      const s = await open();
      await s.start({ id: "pid", argv: ["sh", "-c", "sleep 1000 & echo $$; wait"], ...QUICK });
      const [pid] = linesOf(await s.takeUntil("it runs", ({ text }) => text !== ""));
      const { pids } = kindred(Number(pid));
      const before = pids().length;
      await end(s);
      expect(isAlive(Number(pid))).toBe(false);
      expect(before - pids().length).toBe(2);
    }
    const again = await Watching.in(troupe, `m${nth - 1}`);
    expect(await again.status("pid")).toMatchObject({ state: "ended", end: { reason: "session_closed" } });
  });
});

test("a monitor needs what its plugin's entry grants: processes for a command, read for a file and where its links lead", async () => {
  const folder = await tempFolder();
  await mkdir(join(folder, "open"));
  await writeFile(join(folder, "secret.log"), "");
  await writeFile(join(folder, "open", "app.log"), "");
  await symlink(join(folder, "secret.log"), join(folder, "open", "link.log"));
  const troupe = await startTroupe({
    plugins: [{ module: plugin("watches"), permissions: { read: [join(folder, "open")] } }],
  });
  const s = await Watching.in(troupe, "s");
  const start = (watched: object) => ["startMonitor", { id: "x", ...watched }] as const;
  const answers = await s.ask(
    start({ argv: ["true"] }),
    start({ file: join(folder, "secret.log") }),
    start({ file: join(folder, "open", "link.log") }),
    start({ file: join(folder, "open", "..", "secret.log") }),
    start({ file: join(folder, "open", "app.log") }),
  );
  expect(answers.map(({ error }) => error)).toEqual([
    "process_denied",
    "monitor_denied",
    "monitor_denied",
    "monitor_denied",
    undefined,
  ]);
  expect(answers[1]?.details).toMatchObject({
    pluginId: "test.watches",
    grant: { read: [join(folder, "secret.log")] },
  });
  await rename(join(folder, "open", "link.log"), join(folder, "open", "app.log"));
  const updates = await s.takeUntil("it has ended", ({ end }) => end !== undefined);
  expect(updates.at(-1)?.end).toMatchObject({ reason: "failed", error: { code: "monitor_denied" } });
});

test("a monitor that delivers wakes its parked session with each update once, and gathers while the session is busy", async () => {
  const folder = await tempFolder();
  const file = join(folder, "app.log");
  await writeFile(file, "");
  const troupe = await startTroupe({ plugins: PLUGINS, model: scriptedModel([{ text: "seen" }, { text: "seen" }]) });
  const s = await Watching.in(troupe, "s");
  await s.start({ id: "log", label: "The log", file, deliver: "turn", ...QUICK });
  await s.session.park();
  await appendFile(file, "one\ntwo\n");
  await until("the session had its turn", async () => (await s.session.info()).turns === 1);
  await appendFile(file, "three\n");
  await until("the session had another", async () => (await s.session.info()).turns === 2);
  const texts = (await s.session.messages())
    .filter(({ role }) => role === "user")
    .map(({ parts }) => parts.map((part) => ("text" in part ? part.text : "")).join(""));
  expect(texts).toEqual(['Monitor "The log":\none\ntwo', 'Monitor "The log":\nthree']);
  expect(await s.take()).toEqual([]);
});

describe("a monitor in its session's list of tasks", () => {
  const label = "The log";
  const id = "monitor:test.watches/log";

  test("is a task of kind monitor, and cancelling that ends it with everything its command started", async () => {
    const troupe = await startTroupe({ plugins: PLUGINS });
    const s = await Watching.in(troupe, "s");
    await s.start({ id: "log", label, argv: ["sh", "-c", "sleep 1000 & echo $$ $!; wait"], ...QUICK });
    const pids =
      linesOf(await s.takeUntil("it runs", ({ text }) => text !== ""))[0]
        ?.split(" ")
        .map(Number) ?? [];
    const [listed] = await s.ask(["listBackgroundTasks"]);
    expect(listed?.value).toMatchObject([{ id, kind: "monitor", state: "running", label, owner: null }]);
    expect(await s.ask(["transferAsyncHandles", (await s.session.fork()).id, [id]])).toMatchObject([
      { error: "invalid_task" },
    ]);
    expect(pids.map(isAlive)).toEqual([true, true]);
    expect(await s.ask(["cancelBackgroundTask", id])).toMatchObject([{ value: { id, state: "cancelled" } }]);
    expect(pids.map(isAlive)).toEqual([false, false]);
    expect((await s.status("log"))?.end).toEqual({ reason: "stopped" });
  });

  test("ends with it: as completed, failed or cancelled", async () => {
    const troupe = await startTroupe({ plugins: PLUGINS });
    const s = await Watching.in(troupe, "s");
    await s.start({ id: "done", argv: ["sh", "-c", "exit 3"], ...QUICK });
    await s.start({ id: "broken", tool: "nothing_such", everyMs: 100, ...QUICK });
    await s.start({ id: "stopped", argv: ["sleep", "1000"], ...QUICK });
    await s.stop("stopped");
    const ends = async () =>
      (await s.session.tasks()).map(({ state, result, error }) => [state, result, error?.code ?? null]);
    await until("all have ended", async () => (await ends()).every(([state]) => state !== "running"));
    expect(await ends()).toEqual([
      ["completed", { reason: "exit", exitCode: 3 }, null],
      ["failed", null, "monitor_tool_failed"],
      ["cancelled", null, null],
    ]);
  });

  test("that does not start leaves nothing there", async () => {
    const troupe = await startTroupe({ plugins: PLUGINS });
    const s = await Watching.in(troupe, "s");
    expect(await s.ask(["startMonitor", { id: "log", argv: ["/no/such/program"] }])).toMatchObject([
      { error: "process_not_started" },
    ]);
    expect(await s.session.tasks()).toEqual([]);
  });
});

test("a tool that is run without a model has the hooks around it that every call has", async () => {
  const inputSchema = { type: "object", properties: { of: { type: "string" } } } as const;
  const gauge = { description: "Says", inputSchema, execute: ({ of }: { of: string }) => `secret ${of}` };
  const troupe = await startTroupe({ plugins: [...PLUGINS, { module: plugin("guards-gauge") }], tools: { gauge } });
  const s = await Watching.in(troupe, "s");
  const poll = (id: string) => s.start({ id, tool: "gauge", args: { of: id }, everyMs: 100, ...QUICK });
  await poll("plain");
  const updates = await s.takeUntil("it was run", ({ text }) => text !== "");
  expect(linesOf(updates)).toEqual(["[hidden] plain as the hook has it"]);
  await poll("denied");
  await poll("asked");
  await until(
    "both have ended",
    async () => (await s.status("denied"))?.end != null && (await s.status("asked"))?.end != null,
  );
  expect([(await s.status("denied"))?.end, (await s.status("asked"))?.end]).toMatchObject([
    { error: { code: "monitor_tool_failed", message: expect.stringContaining("The gauge is closed.") } },
    { error: { code: "monitor_tool_failed", message: expect.stringContaining("has to be approved") } },
  ]);
});

test("updates that a turn's tool has taken are not lost with its worker: taken again they are the same", async () => {
  const path = await tempFolder();
  const file = join(path, "app.log");
  await writeFile(file, "");
  const take = (calls: object) => ({ toolCalls: [{ tool: "watches_ask", args: { calls } as never }] });
  const troupe = await startTroupe({
    store: { path: join(path, "store") },
    journal: true,
    sessionWorkers: 1,
    plugins: PLUGINS,
    tools: {
      gate: { description: "Waits", inputSchema: { type: "object" }, execute: () => opened },
    },
    model: scriptedModel([
      take([["takeMonitorUpdates"]]),
      { toolCalls: [{ tool: "gate", args: {} }] },
      { text: "done" },
    ]),
  });
  const s = await Watching.in(troupe, "s");
  await s.start({ id: "log", file, ...QUICK });
  await appendFile(file, "one\n");
  await until("it waits to be taken", async () => (await s.status("log"))?.waiting === 1);
  const turn = s.session.turn("go");
  for await (const { type, ...rest } of turn)
    if (type === "tool_call_started" && "toolName" in rest && rest.toolName === "gate") break;
  await troupe.kill({ sessionWorker: 0 });
  open("now");
  expect((await turn).text).toBe("done");
  const [results] = (await s.session.messages()).filter(({ role }) => role === "tool");
  expect(JSON.stringify(results)).toContain("one");
  expect(await s.take()).toEqual([]);
});
let open: (value: string) => void = () => undefined;
const opened = new Promise<string>((resolve) => {
  open = resolve;
});
