import { spawn } from "node:child_process";
import { once } from "node:events";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { type Session, type Troupe, type TroupeOptions, verifyStore } from "troupe";
import { describe, expect, test } from "vitest";
import { fixture, NODE_ARGS, startTroupe, tempFolder, until } from "../../support/runtime.js";

// Plain modules, shared with the program that is killed.
const { askingOptions, endThreadBy, linesIn, seam } = (await import(fixture("asking/seams.mjs").href)) as {
  askingOptions: (folder: string) => TroupeOptions;
  endThreadBy: (kill: () => Promise<void>) => void;
  linesIn: (folder: string) => string[];
  seam: (folder: string, line: string) => Promise<void> | undefined;
};

/** A folder in which a process died at a seam of a call that waits for a yes. */
async function killedAt(seam: string, answer: object = {}): Promise<string> {
  const folder = await tempFolder();
  writeFileSync(join(folder, "order"), `process ${seam}`);
  const args = [...NODE_ARGS, fixture("programs/asks.mjs").pathname, folder, JSON.stringify(answer)];
  const program = spawn(process.execPath, args, { stdio: ["ignore", "ignore", "inherit"] });
  const [, signal] = await once(program, "exit");
  expect(signal).toBe("SIGKILL");
  expect(saidOf(folder)).toEqual([]);
  return folder;
}

/** What is wrong with its store, rows of calls that wait included. */
function saidOf(folder: string): unknown[] {
  const { file, sessions, others } = verifyStore(join(folder, "store"));
  return [...file, ...sessions.flatMap(({ findings }) => findings), ...others];
}

async function finished(troupe: Troupe): Promise<Session> {
  const session = await troupe.session("s");
  await until("the turn is stored", async () => (await session.info()).turns === 1);
  return session;
}

async function endOf(session: Session) {
  const texts = (await session.messages()).flatMap(({ role, parts }) =>
    role === "assistant" ? parts.flatMap((part) => (part.type === "text" ? [part.text] : [])) : [],
  );
  return { texts, state: await session.query("asking.state") };
}

const STATE = { before: 1, after: 1 };

describe("a process that is killed", () => {
  test("while a call waits for a yes leaves it waiting: hooks are not asked again, and the body runs behind the yes", async () => {
    const folder = await killedAt("waiting");
    const troupe = await startTroupe(askingOptions(folder));
    const { calls } = await troupe.pending({ tenant: "acme" });
    expect(calls).toMatchObject([
      { sessionId: "s", toolName: "pay", args: { amount: 5 }, announcement: { kind: "approval", value: "May I?" } },
    ]);
    expect(await troupe.approve(calls[0]?.key as string)).toBe("counted");
    expect(await endOf(await finished(troupe))).toEqual({ texts: ["paid 5"], state: STATE });
    expect(linesIn(folder)).toEqual(["model 0", "before 5", "waiting", ">body 5", "<body 5", "after", "model 1"]);
    expect((await troupe.pending()).calls).toEqual([]);
  });

  test.each([
    // Which comes first, the word that the answer is stored or the body, is chance.
    ["answered", 1],
    // What had not finished is done again.
    [">body", 2],
    ["<body", 2],
    ["after", 1],
  ])("behind the yes, at %s, leaves a turn that goes on by itself: nobody is asked again", async (seam, bodies) => {
    const folder = await killedAt(seam);
    const troupe = await startTroupe(askingOptions(folder));
    expect((await troupe.pending()).calls).toEqual([]);
    expect(await endOf(await finished(troupe))).toEqual({ texts: ["paid 5"], state: STATE });
    const lines = linesIn(folder);
    const count = (line: string) => lines.filter((each) => each === line).length;
    expect({ model: count("model 0"), before: count("before 5"), waiting: count("waiting") }).toEqual({
      model: 1,
      before: 1,
      waiting: 1,
    });
    if (seam === "answered") expect([1, 2]).toContain(count(">body 5"));
    else expect(count(">body 5")).toBe(bodies);
  });

  test("behind a yes with other arguments goes on with these, and hooks have looked at them once", async () => {
    const folder = await killedAt(">body", { args: { amount: 3 } });
    const troupe = await startTroupe(askingOptions(folder));
    const session = await finished(troupe);
    expect(await endOf(session)).toEqual({ texts: ["paid 3"], state: { before: 2, after: 1 } });
    const looked = linesIn(folder).filter((line) => line.startsWith("before"));
    expect(looked).toEqual(["before 5", "before 3"]);
    expect(linesIn(folder).filter((line) => line.startsWith(">body"))).toEqual([">body 3", ">body 3"]);
  });
});

describe("a session worker that dies", () => {
  test.each([
    ["waiting", {}, 1],
    [">body", {}, 2],
    ["<body", {}, 2],
    ["after", {}, 1],
    [">body", { args: { amount: 3 } }, 2],
  ])(
    "at %s of a call that waits for a yes (%j) costs the caller nothing, and nobody is asked twice",
    async (at, answer, bodies) => {
      const folder = await tempFolder();
      const troupe = await startTroupe(askingOptions(folder));
      const session = await troupe.session("s");
      endThreadBy(() => troupe.kill({ sessionWorker: 0 }));
      writeFileSync(join(folder, "order"), `thread ${at}`);
      const turn = session.turn("pay");
      await until("a call waits", async () => (await troupe.pending()).calls.length === 1);
      const [call] = (await troupe.pending()).calls;
      await seam(folder, "waiting");
      expect(await troupe.approve(call?.key as string, answer)).toBe("counted");
      const { amount } = { amount: 5, ...("args" in answer ? answer.args : {}) };
      expect((await turn).text).toBe(`paid ${amount}`);
      expect((await troupe.stats()).workers[0]?.restarts).toBe(1);
      const lines = linesIn(folder);
      const looked = amount === 5 ? ["before 5"] : ["before 5", `before ${amount}`];
      expect(lines.filter((line) => line.startsWith("before"))).toEqual(looked);
      const ran = lines.filter((line) => line.startsWith(">body"));
      expect(ran).toEqual(ran.map(() => `>body ${amount}`));
      expect(ran).toHaveLength(bodies);
      expect(await endOf(session)).toEqual({ texts: [`paid ${amount}`], state: { before: looked.length, after: 1 } });
      expect((await troupe.pending()).calls).toEqual([]);
    },
  );
});

test("a yes with other arguments counts right after a restart, when the turn has come to wait again", async () => {
  const folder = await killedAt("waiting");
  const troupe = await startTroupe(askingOptions(folder));
  const [call] = (await troupe.pending()).calls;
  expect(await troupe.approve(call?.key as string, { args: { amount: 2 } })).toBe("counted");
  expect(await endOf(await finished(troupe))).toEqual({ texts: ["paid 2"], state: { before: 2, after: 1 } });
});

test("a call that waits and whose tool is gone with the next release waits no more", async () => {
  const folder = await killedAt("waiting");
  const { tools: _gone, ...options } = askingOptions(folder);
  const troupe = await startTroupe(options);
  const session = await troupe.session("s");
  await until("the turn is stored", async () => (await session.info()).turns === 1);
  expect((await troupe.pending()).calls).toEqual([]);
  await troupe.close();
  expect(saidOf(folder)).toEqual([]);
});
