import { expect, test } from "vitest";
import { fixture, RESIDENT, startTroupe } from "../../support/runtime.js";

const REACHES_OUT = { module: fixture("hostile/reaches-out.mjs") };
const BY_TROUPE = "process_wide";

test("a plugin can neither signal its process nor change what all threads share, however it imports the function", async () => {
  const troupe = await startTroupe({ ...RESIDENT, sessionWorkers: 1, plugins: [REACHES_OUT] });
  const session = await troupe.session("s");
  const tried = (await session.query("reaches.tries")) as Record<string, string>;
  expect(Object.entries(tried).filter(([, outcome]) => outcome === "worked")).toEqual([]);
  expect(tried).toMatchObject({
    "process.kill": BY_TROUPE,
    "kill imported by name": BY_TROUPE,
    "process._kill": BY_TROUPE,
    "process.report": "TypeError",
    "os.setPriority": BY_TROUPE,
    "setPriority imported by name": BY_TROUPE,
    "setPriority of require": BY_TROUPE,
    "setPriority of getBuiltinModule": BY_TROUPE,
    "v8.setFlagsFromString": BY_TROUPE,
    "setFlagsFromString imported by name": BY_TROUPE,
    "v8.setHeapSnapshotNearHeapLimit": BY_TROUPE,
    "module.register": BY_TROUPE,
    "inspector.Session": BY_TROUPE,
    "inspector.open": BY_TROUPE,
    "a message to the main thread": BY_TROUPE,
  });
  expect((await session.turn("hi")).outcome.type).toBe("finished");
});

test("a plugin finds none of the ports its thread talks to others by", async () => {
  const troupe = await startTroupe({ ...RESIDENT, sessionWorkers: 1, plugins: [REACHES_OUT] });
  const session = await troupe.session("s");
  expect(await session.query("reaches.ports")).toEqual({
    parentPort: true,
    workerData: true,
    current: false,
    created: false,
    active: false,
    stdio: false,
  });
});

test("a plugin may ask whether a process is there", async () => {
  const troupe = await startTroupe({ ...RESIDENT, sessionWorkers: 1, plugins: [REACHES_OUT] });
  expect(await (await troupe.session("s")).query("reaches.asks")).toBe(true);
});

test("SIGUSR1 opens no inspector while any runtime with isolated plugins is open, and is Node's again afterwards", async () => {
  const holders = () => process.listenerCount("SIGUSR1");
  const before = holders();
  const first = await startTroupe({ sessionWorkers: 1, plugins: [REACHES_OUT] });
  const second = await startTroupe({ sessionWorkers: 1, plugins: [REACHES_OUT] });
  expect(holders()).toBe(before + 1);
  await first.close();
  expect(holders()).toBe(before + 1);
  await second.close();
  expect(holders()).toBe(before);
});
