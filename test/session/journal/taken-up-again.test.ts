import { expect, test } from "vitest";
import { type Json, NO_USAGE } from "../../../src/kernel/index.js";
import { definePlugin } from "../../../src/plugin/index.js";
import { sealEnvelope } from "../../../src/store/index.js";
import { encode } from "../../../src/wire/index.js";
import { MemoryStore } from "../../support/memory-store.js";
import { type MemorySessionOptions, memorySession } from "../turn/memory-session.js";

const START = {
  call: undefined,
  input: "hi",
  parts: [{ type: "text", text: "hi" }],
  extras: {},
  blobs: [],
  inputIds: [],
};

const HI = {
  id: "t1.0",
  role: "user",
  parts: [{ type: "text", text: "hi" }],
  origin: { kind: "turn_input", turnId: "t1" },
};

interface Left {
  /** Rows with something in them, by key. */
  readonly rows?: Readonly<Record<string, { readonly envelope: Json; readonly value: unknown }>>;
  readonly plugins?: MemorySessionOptions["plugins"];
}

/** A session whose first turn has these rows in its journal, taken up again. */
async function takenUpWith(keys: readonly string[], { rows = {}, plugins = [] }: Left = {}) {
  const store = new MemoryStore();
  const epoch = store.claim("s");
  for (const key of ["start", ...keys]) {
    const bytes = encode(key === "start" ? START : null);
    await store.record({ sessionId: "s", turnId: "t1", key, ...sealEnvelope(null), bytes, expectedRevision: 0, epoch });
  }
  for (const [key, { envelope, value }] of Object.entries(rows)) {
    const row = { sessionId: "s", turnId: "t1", key, ...sealEnvelope(envelope), bytes: encode(value) };
    await store.record({ ...row, expectedRevision: 0, epoch });
  }
  return (await memorySession({ store, journals: true, plugins })).resume();
}

const times = (count: number, keys: (n: number) => readonly string[]) =>
  Array.from({ length: count }, (_, n) => keys(n + 1)).flat();

const lasting = (n: number) => [`resumed:${n}`, `lasted:${n}`];
const poisoned = (deaths: number) => ({
  outcome: { type: "stopped", reason: "runtime_error" },
  issues: [{ code: "turn_poisoned", message: `The turn's worker died with it ${deaths} times.` }],
});

test("a turn whose worker died with it three times at once is ended as what kills it", async () => {
  expect(await takenUpWith(times(2, (n) => [`resumed:${n}`]))).toMatchObject({ text: "You said: hi", issues: [] });
  expect(await takenUpWith(times(3, (n) => [`resumed:${n}`]))).toMatchObject(poisoned(4));
});

test("a turn that lasts each time it is taken up and never does anything is ended after twelve times", async () => {
  expect(await takenUpWith(times(11, lasting))).toMatchObject({ text: "You said: hi", issues: [] });
  expect(await takenUpWith(times(12, lasting))).toMatchObject(poisoned(13));
});

test("a turn that comes to a wait now and then is taken up as often as its worker dies", async () => {
  const waiting = (n: number) => (n === 6 ? [`resumed:${n}`, `waits:${n}`] : lasting(n));
  expect(await takenUpWith(times(17, waiting))).toMatchObject({ text: "You said: hi", issues: [] });
});

test("a turn that a release left behind which had everything in the system text goes on with the answer it paid for", async () => {
  const clock = definePlugin({
    id: "test.clock",
    version: "1.0.0",
    hooks: { promptContributor: () => ({ slot: "runtime_context", content: "It is noon." }) },
  });
  const asked = (system: string) => ({ model: "scripted", system, tools: [], turn: [HI] });
  const response = { parts: [{ type: "text", text: "Paid before." }], finishReason: "stop", usage: NO_USAGE };
  const record = { modelCallId: "t1:0", step: 0, model: "scripted", route: "scripted", attempts: [] };
  const takenUp = async (system: string) => {
    const rows = { "model:0": { envelope: asked(system), value: { response, aborted: false, record } } };
    return takenUpWith([], { rows, plugins: [clock] });
  };
  expect(await takenUp("## Environment\n\nIt is noon.")).toMatchObject({ text: "Paid before.", issues: [] });
  expect(await takenUp("")).toMatchObject({ text: "Paid before.", issues: [] });
  expect(await takenUp("## Environment\n\nIt is one.")).toMatchObject({ issues: [{ code: "replay_mismatch" }] });
});
