import { expect, onTestFinished, test } from "vitest";
import { systemClock } from "../../../dist/src/async/index.js";
import { resolveOptions } from "../../../dist/src/runtime/options/index.js";
import { Runtime } from "../../../dist/src/runtime/places/index.js";
import { Turns } from "../../../dist/src/runtime/turns/index.js";
import { openLmdbReader } from "../../../dist/src/store/index.js";
import { EMPTY_OBJECT, oneToolCall, RESIDENT, tempFolder, until } from "../../support/runtime.js";

const ignore = () => undefined;
/** The threads' own errors: those of the package have another class here. */
const refused = (asked: PromiseLike<unknown>) =>
  asked.then(
    () => "done",
    (error: object) => error,
  );
const NOTE = { nodes: [{ kind: "plugin", pluginType: "note", body: 1 }] } as const;

/** A runtime's threads without the host's handle, so that a session can be opened on two of them. */
async function twoWorkers(tools: object) {
  const path = await tempFolder();
  const options = { ...RESIDENT, sessionWorkers: 2, store: { path }, tools, model: oneToolCall("slow"), drainMs: 100 };
  const runtime: Runtime = new Runtime(resolveOptions(options as never, systemClock), {
    hub: undefined,
    onActivity: ignore,
    onObserved: ignore,
    onInspected: ignore,
    relay: async () => undefined,
    onFull: ignore,
    onStarted: async () => undefined,
    onStoreLost: ignore,
  });
  await runtime.crew.start();
  onTestFinished(() => runtime.crew.close({ drainMs: 0 }));
  const turns = new Turns(runtime);
  const open = (worker: number, take: "always" | "free" = "always") =>
    runtime.worker(worker).ask("open", { sessionId: "s", take });
  return { path, runtime, turns, open };
}

test("a session that another thread opens in the middle of a turn goes on there, and the first thread stores nothing of it", async () => {
  const calls: ((answer: string) => void)[] = [];
  const execute = () => new Promise<string>((resolve) => calls.push(resolve));
  const slow = { description: "Waits", inputSchema: EMPTY_OBJECT, execute };
  const { path, runtime, turns, open } = await twoWorkers({ slow });
  const { worker: first } = runtime.directory.of("s");
  const second = 1 - first;
  await open(first);
  const lost = refused(turns.ask("s", "hello"));
  await until("the tool is called", () => calls.length === 1);
  await open(second);
  // The turn was taken up there: the call under way is made again.
  await until("the tool is called again", () => calls.length === 2);
  calls[1]?.("through");
  const reader = openLmdbReader(path);
  onTestFinished(() => reader.close());
  await until("the turn is stored", () => reader.head("s")?.turnIndex === 1);
  expect(reader.journal("s")).toEqual([]);
  const stored = reader.storedHead("s");

  // The first call's answer comes now, to a thread that has the session no more.
  calls[0]?.("late");
  expect(await lost).toMatchObject({ code: "session_moved", retryable: true });
  // What is asked of it there takes the session from nobody; only opening it does.
  const view = () => runtime.worker(first).ask("view", { sessionId: "s" });
  expect(await refused(view())).toMatchObject({ code: "session_moved" });
  expect([reader.storedHead("s"), reader.journal("s")]).toEqual([stored, []]);
  await open(first);
  expect(await view()).toMatchObject({ turnIndex: 1 });
  expect(await refused(runtime.worker(second).ask("append", { sessionId: "s", request: NOTE }))).toMatchObject({
    code: "session_moved",
  });
  expect(await refused(open(second, "free"))).toMatchObject({ code: "session_moved" });
});
