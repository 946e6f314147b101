import { MessageChannel } from "node:worker_threads";
import { expect, onTestFinished, test } from "vitest";
import { systemClock } from "../../../src/async/index.js";
import { openMemory, StoreClient, StoreServer } from "../../../src/store/index.js";
import { ManualClock } from "../../support/manual-clock.js";
import { turn } from "../commits.js";

/** A client whose clock goes on by so much while a write is under way. */
async function writing(tookMs: number): Promise<readonly unknown[]> {
  const server = new StoreServer(openMemory(), systemClock);
  onTestFinished(() => server.close());
  const { port1, port2 } = new MessageChannel();
  server.attach(port1);
  const clock = new ManualClock();
  const told: unknown[] = [];
  const client = new StoreClient({ clock, port: port2, options: { memory: true }, onSlow: (slow) => told.push(slow) });
  onTestFinished(() => client.close());
  const { epoch } = await client.open("s", { take: "always", journal: false });
  const written = client.commit({ ...turn("s", 1), epoch });
  clock.advance(tookMs);
  await written;
  return told;
}

test("a write that takes a second or more is told with the session and how long it took", async () => {
  expect(await writing(1_200)).toEqual([{ sessionId: "s", write: "commit", tookMs: 1_200 }]);
});

test("a write that takes less is not told", async () => {
  expect(await writing(999)).toEqual([]);
});
