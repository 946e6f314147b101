import { fork } from "node:child_process";
import { once } from "node:events";
import { readFileSync } from "node:fs";
import { scriptedModel, type Troupe } from "troupe";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { isAlive, kindred } from "../../support/pids.js";
import { fixture, plugin, startTroupe, tempFolder, until } from "../../support/runtime.js";

type Call = readonly [method: string, ...args: readonly unknown[]];
interface Answer {
  readonly value?: unknown;
  readonly missing?: true;
  readonly error?: string;
  readonly message?: string;
  readonly details?: object;
}
interface View {
  readonly id: string;
  readonly pid: number;
}

const given = <T>(answer: Answer | undefined): T => answer?.value as T;
const textOf = (answer: Answer | undefined): string => given<{ readonly text: string } | undefined>(answer)?.text ?? "";

const GRANTED = { permissions: { processes: true, env: ["TROUPE_TEST_GIVEN"] } };
const PLUGINS = [{ module: plugin("runs-processes"), ...GRANTED }];
const LOOP = ["sh", "-c", "sleep 1000 & sleep 1000 & wait"];

describe("processes of a plugin", () => {
  let troupe: Troupe;
  let nth = 0;

  beforeAll(async () => {
    process.env.TROUPE_TEST_GIVEN = "given";
    process.env.TROUPE_TEST_SECRET = "secret";
    const { createTroupe } = await import("troupe");
    troupe = await createTroupe({
      sessionWorkers: 1,
      plugins: [
        ...PLUGINS,
        { module: plugin("runs-processes-too"), permissions: { processes: true } },
        { module: plugin("asks-host") },
      ],
    });
  });
  afterAll(() => troupe.close());

  async function open() {
    const session = await troupe.session(`p${++nth}`);
    const act = async (...calls: Call[]) =>
      (await session.command("test.runs.act", { calls })).output as unknown as Answer[];
    const look = async (...calls: Call[]) => (await session.query("test.runs.look", { calls })) as unknown as Answer[];
    const start = async (request: object) => given<View>((await act(["start", request]))[0]);
    return { session, act, look, start };
  }

  /** Everything it has said, read as it comes. */
  async function said({ look }: Awaited<ReturnType<typeof open>>, id: string, stream = "stdout") {
    let text = "";
    for (let from = 0, ended = false; !ended; ) {
      const [answer] = await look(["read", id, { from, stream, waitMs: 1_000 }]);
      const output = given<{ text: string; next: number; ended: boolean }>(answer);
      text += output.text;
      from = output.next;
      ended = output.ended;
    }
    return text;
  }

  test("run by argv without a shell, with nothing of the host's environment but what is named", async () => {
    const s = await open();
    const child = await s.start({
      argv: ["sh", "-c", 'printf "%s|" "$0" "$@"; env | cut -d= -f1 | sort', "$HOME", "a b", "*"],
      env: ["TROUPE_TEST_GIVEN"],
      cwd: "/",
    });
    const [words, ...names] = (await said(s, child.id)).split("\n");
    expect(words).toMatch(/^\$HOME\|a b\|\*\|/);
    const set = [(words as string).split("|").at(-1), ...names].filter((name) => name !== "" && name !== undefined);
    expect(set.filter((name) => !["PWD", "OLDPWD", "_", "SHLVL"].includes(name as string))).toEqual([
      "TROUPE_PROCESS",
      "TROUPE_TEST_GIVEN",
    ]);
    const [ended] = await s.look(["wait", child.id, { waitMs: 5_000 }]);
    expect(ended?.value).toMatchObject({ state: "exited", exitCode: 0, signal: null, pid: child.pid });
  });

  test("are written to, end with their input, and say how they ended", async () => {
    const s = await open();
    const { id } = await s.start({ argv: ["sh", "-c", "cat; echo bye >&2; exit 7"], stdin: true });
    expect(await s.act(["write", id, "hello "], ["write", id, "world"], ["end", id])).toEqual(
      Array.from({ length: 3 }, () => ({ value: null })),
    );
    expect([await said(s, id), await said(s, id, "stderr")]).toEqual(["hello world", "bye\n"]);
    const answers = await s.act(["wait", id, { waitMs: 5_000 }], ["write", id, "late"]);
    expect(answers[0]?.value).toMatchObject({ state: "exited", exitCode: 7 });
    expect(answers[1]).toMatchObject({ error: "process_input_refused" });
  });

  test("without a standard input have an empty one, and writing to them is refused", async () => {
    const s = await open();
    const { id } = await s.start({ argv: ["cat"] });
    expect(await said(s, id)).toBe("");
    expect(await s.act(["write", id, "x"])).toMatchObject([{ error: "process_input_refused" }]);
  });

  test("are sent signals, and stopped with everything they started", async () => {
    const s = await open();
    const trapping = await s.start({
      argv: ["sh", "-c", "trap 'echo got it' USR1; echo ready; while :; do sleep 0.01; done"],
    });
    await until("it is ready", async () => textOf((await s.look(["read", trapping.id]))[0]) === "ready\n");
    await s.act(["signal", trapping.id, "SIGUSR1"]);
    await until("it got it", async () => textOf((await s.look(["read", trapping.id]))[0]).includes("got it"));
    const { pids } = kindred(trapping.pid);
    const [stopped] = await s.act(["stop", trapping.id]);
    expect(stopped?.value).toMatchObject({ state: "exited", signal: "SIGTERM" });
    const stubborn = await s.start({
      argv: ["sh", "-c", "trap '' TERM; sleep 1000 & echo up; while :; do sleep 1; done"],
    });
    await until("it is up", async () => textOf((await s.look(["read", stubborn.id]))[0]) === "up\n");
    expect((await s.act(["stop", stubborn.id]))[0]?.value).toMatchObject({ signal: "SIGKILL" });
    await until("nothing of them is left", () => pids().length === 0);
  });

  test("say without end: what is kept is bounded, and what is lost is announced", async () => {
    const s = await open();
    const { id } = await s.start({ argv: ["yes", "0123456789"], keepBytes: 10_000 });
    await until("much was said", async () => {
      const [answer] = await s.look(["read", id, { from: 0, maxBytes: 64 }]);
      return given<{ dropped: number }>(answer).dropped > 1_000_000;
    });
    const [listed] = await s.act(["list"], ["stop", id]);
    const [view] = given<[{ stdout: { from: number; to: number } }]>(listed);
    expect(view.stdout.to - view.stdout.from).toBeLessThanOrEqual(10_000);
  });

  test("that do not start say Node's code and the path", async () => {
    const s = await open();
    const unrunnable = fixture("plugins/runs-processes.mjs").pathname;
    const answers = await s.act(
      ["start", { argv: ["/no/such/program"] }],
      ["start", { argv: ["no-such-program-anywhere"] }],
      ["start", { argv: ["ls"], cwd: "/no/such/folder" }],
      ["start", { argv: [unrunnable] }],
    );
    expect(answers.map(({ error, details }) => [error, details])).toEqual([
      ["process_not_started", { code: "ENOENT", path: "/no/such/program" }],
      ["process_not_started", { code: "ENOENT", path: "no-such-program-anywhere" }],
      ["process_not_started", { code: "ENOENT", path: "/no/such/folder" }],
      ["process_not_started", { code: "EACCES", path: unrunnable }],
    ]);
  });

  test("asked for with something wrong are refused, in the words of the request", async () => {
    const s = await open();
    const requests: readonly unknown[] = [
      undefined,
      { argv: "ls -l" },
      { argv: [] },
      { argv: ["ls", 1] },
      { argv: ["ls\0"] },
      { argv: ["ls"], comand: "x" },
      { argv: ["ls"], env: { A: "1" } },
      { argv: ["ls"], env: ["A=1"] },
      { argv: ["ls"], keepBytes: 1e9 },
      { argv: ["ls"], cwd: 1 },
      { argv: ["ls"], stdin: "yes" },
    ];
    const answers = await s.act(...requests.map((request): Call => ["start", request]));
    expect(answers.map(({ error }) => error)).toEqual(requests.map(() => "invalid_process"));
    const { id } = await s.start({ argv: ["true"] });
    const others = await s.act(
      ["read", id, { stream: "stdin" }],
      ["read", id, { from: -1 }],
      ["signal", id, "SIGNOTHING"],
      ["write", id, 7],
      ["stop"],
      ["stop", "nothing"],
    );
    expect(others.map(({ error }) => error)).toEqual([...Array(5).fill("invalid_process"), "process_unknown"]);
  });

  test("may have of the environment what the plugin's entry names, and no more", async () => {
    const s = await open();
    expect(await s.act(["start", { argv: ["env"], env: ["TROUPE_TEST_SECRET"] }])).toMatchObject([
      { error: "process_denied", details: { grant: { env: ["TROUPE_TEST_SECRET"] } } },
    ]);
  });

  test("are for plugins whose entry grants them; for a query they can only be looked at", async () => {
    const s = await open();
    const calls = [["startProcess"], ["listProcesses"]];
    const asked = await s.session.query("host.read", { calls });
    expect(asked).toEqual([{ missing: true }, { missing: true }]);
    const { id } = await s.start({ argv: LOOP });
    const answers = await s.look(["list"], ["start", { argv: ["true"] }], ["stop", id], ["wait", id]);
    expect(answers.map(({ missing, value }) => missing ?? typeof value)).toEqual(["object", true, true, "object"]);
    await s.act(["stop", id]);
  });

  test("are the plugin's own in the session: no other plugin and no other session has them", async () => {
    const s = await open();
    const other = await open();
    const { id } = await s.start({ argv: LOOP });
    const calls = [["list"], ["read", id], ["stop", id]];
    const nothing = [{ value: [] }, { error: "process_unknown" }, { error: "process_unknown" }];
    const { output } = await s.session.command("test.too.act", { calls });
    expect(output).toMatchObject(nothing);
    expect(await other.act(["list"], ["read", id], ["stop", id])).toMatchObject(nothing);
    await s.act(["stop", id]);
  });

  test("are limited to sixteen of a session that run at once", async () => {
    const s = await open();
    const answers = await s.act(...Array.from({ length: 17 }, (): Call => ["start", { argv: ["sleep", "1000"] }]));
    expect(answers.map(({ error }) => error)).toEqual([...Array(16).fill(undefined), "process_limit"]);
    await s.session.close();
    const pids = answers.slice(0, 16).map(({ value }) => (value as View).pid);
    expect(pids.filter(isAlive)).toEqual([]);
  });

  test("go on when the plugin's thread dies, when the session is parked and when its worker is killed", async () => {
    const s = await open();
    const child = await s.start({ argv: ["cat"], stdin: true });
    await troupe.kill({ plugin: "test.runs" });
    await s.act(["write", child.id, "one "]);
    await s.session.park();
    await s.act(["write", child.id, "two "]);
    await troupe.kill({ sessionWorker: 0 });
    await s.act(["write", child.id, "three"], ["end", child.id]);
    expect(await said(s, child.id)).toBe("one two three");
  });

  test("end with the close of their session, and with its deletion", async () => {
    const closed = await open();
    const deleted = await open();
    const pids = [await closed.start({ argv: LOOP }), await deleted.start({ argv: LOOP })].map(({ pid }) => pid);
    const groups = () => pids.filter(isAlive);
    expect(groups()).toEqual(pids);
    await closed.session.close();
    await troupe.deleteSession(deleted.session.id, { running: "cancel" });
    expect(groups()).toEqual([]);
    const again = await troupe.session(closed.session.id);
    expect(await again.query("test.runs.look", { calls: [["list"]] })).toEqual([{ value: [] }]);
  });
});

test("a plugin whose entry does not grant processes is refused, also one that has other permissions", async () => {
  const troupe = await startTroupe({
    plugins: [{ module: plugin("runs-processes"), permissions: { childProcess: true, read: ["/"] } }],
  });
  const session = await troupe.session("s");
  const { output } = await session.command("test.runs.act", { calls: [["start", { argv: ["true"] }], ["list"]] });
  expect(output).toMatchObject([
    { error: "process_denied", details: { pluginId: "test.runs", grant: { processes: true } } },
    { error: "process_denied" },
  ]);
});

test("a permission that is misspelt is refused when the runtime starts", async () => {
  const start = startTroupe({
    plugins: [{ module: plugin("runs-processes"), permissions: { proceses: true } as never }],
  });
  await expect(start).rejects.toMatchObject({
    code: "invalid_options",
    message: expect.stringContaining('"processes"'),
  });
});

test("a process that a hook started is one, also when its worker dies and the hook is asked again", async () => {
  const troupe = await startTroupe({
    store: { path: await tempFolder() },
    sessionWorkers: 1,
    plugins: PLUGINS,
    model: scriptedModel([{ toolCalls: [{ tool: "runs_guarded", args: {} }] }, { text: "done" }]),
  });
  const session = await troupe.session("s");
  const turn = session.turn("go");
  const listed = async () =>
    given<View[]>(((await session.query("test.runs.look", { calls: [["list"]] })) as unknown as Answer[])[0]);
  await until("the hook has its process", async () => (await listed()).length === 1);
  const [before] = await listed();
  await troupe.kill({ sessionWorker: 0 });
  expect((await turn).text).toBe("done");
  expect(await listed()).toMatchObject([{ id: before?.id, pid: before?.pid }]);
});

test("the thread of processes dies: every process ends with it, and the next one has a thread of its own", async () => {
  const troupe = await startTroupe({ plugins: PLUGINS });
  const session = await troupe.session("s");
  const act = async (...calls: Call[]) =>
    (await session.command("test.runs.act", { calls })).output as unknown as Answer[];
  const [started] = (await act(["start", { argv: LOOP }])) as unknown as [{ readonly value: View }];
  const { pids } = kindred(started.value.pid);
  await until("all of them run", () => pids().length === 3);
  await troupe.kill({ processes: true });
  await until("no process is left", () => pids().length === 0);
  const answers = await act(["list"], ["start", { argv: ["true"] }]);
  expect(answers).toMatchObject([{ value: [] }, { value: { argv: ["true"] } }]);
});

test("close() leaves no process behind, one that left its group included, and no guard", async () => {
  const troupe = await startTroupe({ plugins: PLUGINS });
  const session = await troupe.session("s");
  const calls = [["start", { argv: ["sh", "-c", "setsid sleep 1000 & sleep 1000"] }]];
  const { output } = await session.command("test.runs.act", { calls });
  const { pids } = kindred((output as unknown as [{ value: View }])[0].value.pid);
  await until("all of them run", () => pids().length === 3);
  await troupe.close();
  expect(pids()).toEqual([]);
  const guards = readFileSync(`/proc/self/task/${process.pid}/children`, "utf8");
  expect(
    guards
      .trim()
      .split(" ")
      .filter((pid) => pid !== "" && isGuard(Number(pid))),
  ).toEqual([]);
});

function isGuard(pid: number): boolean {
  return readFileSync(`/proc/${pid}/cmdline`, "utf8").includes("troupe-guard");
}

test("a runtime that has no process has no thread and no guard for them", async () => {
  const troupe = await startTroupe({ plugins: PLUGINS });
  await (await troupe.session("s")).command("test.runs.act", { calls: [["list"]] });
  const children = readFileSync(`/proc/self/task/${process.pid}/children`, "utf8");
  expect(
    children
      .trim()
      .split(" ")
      .filter((pid) => pid !== "" && isGuard(Number(pid))),
  ).toEqual([]);
});

test.each([["wait"], ["start"], ["start"], ["start"]])(
  "a host that is killed (%s) leaves no process behind",
  async (how) => {
    const program = fork(fixture("programs/has-processes.mjs").pathname, [how], { stdio: "inherit" });
    const exited = once(program, "exit");
    const [{ pids }] = (await Promise.race([once(program, "message"), exited])) as [
      { readonly pids: readonly number[] },
    ];
    const left = pids.length === 0 ? undefined : marksOf(pids);
    program.kill("SIGKILL");
    await exited;
    await until("no process is left", () => left === undefined || left().length === 0);
  },
);

/** The mark is read while they run. */
function marksOf(pids: readonly number[]): () => number[] {
  const [pid] = pids.filter(isAlive);
  return pid === undefined ? () => [] : kindred(pid).pids;
}
