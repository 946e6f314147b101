import { expect, test } from "vitest";
import { systemClock } from "../../../dist/src/async/index.js";
import { Thread } from "../../../dist/src/runtime/threads/threads.js";
import { newNativeGate } from "../../../dist/src/wire/index.js";
import { startTroupe, tempFolder, until } from "../../support/runtime.js";

const [INSIDE, SHUT] = [0, 1];
const GATE_BYTES = newNativeGate().byteLength;

test("a thread that is to be ended while it is inside native code lives until it has come out of it", async () => {
  const gate = newNativeGate();
  const thread = new Thread<{ ping(argument: undefined): void }>({
    kind: "session",
    name: "A thread",
    clock: systemClock,
    gate,
  });
  // As the thread itself would say it.
  Atomics.store(gate, INSIDE, 1);
  const ended = thread.terminate();
  await expect(thread.caller.to.ping(undefined)).resolves.toBeUndefined();
  Atomics.store(gate, INSIDE, 0);
  await ended;
  await expect(thread.exited).resolves.toMatchObject({ code: 1 });
});

test("a session worker reads a store on disk behind a gate, at which it waits when it is about to be ended", async () => {
  const gates: Int32Array[] = [];
  const Shared = globalThis.SharedArrayBuffer;
  globalThis.SharedArrayBuffer = class extends Shared {
    constructor(bytes?: number) {
      super(bytes);
      if (bytes === GATE_BYTES) gates.push(new Int32Array(this));
    }
  } as SharedArrayBufferConstructor;
  try {
    const troupe = await startTroupe({ sessionWorkers: 1, store: { path: await tempFolder() } });
    for (const gate of gates) Atomics.store(gate, SHUT, 1);
    const opening = troupe.session("s");
    const letThrough = () => gates.reduce((woken, gate) => woken + Atomics.notify(gate, SHUT), 0);
    await until("it waits at the gate", () => letThrough() === 1);
    for (const gate of gates) Atomics.store(gate, SHUT, 0);
    // One that waits once more since it was let through.
    letThrough();
    expect((await (await opening).turn("hi")).outcome.type).toBe("finished");
  } finally {
    globalThis.SharedArrayBuffer = Shared;
  }
});
