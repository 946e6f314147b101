import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import { MessageChannel } from "node:worker_threads";
import * as Comlink from "comlink";
import nodeEndpoint from "comlink/dist/esm/node-adapter.mjs";
import { expect, onTestFinished, test } from "vitest";
import { systemClock } from "../../src/async/index.js";
import { Caller, serve } from "../../src/wire/index.js";

setFlagsFromString("--expose-gc");
const collectGarbage = runInNewContext("gc") as () => void;

/** A slow service on one end of a channel, and how often its caller's proxy had been released when it was done. */
function slowService() {
  const { port1, port2 } = new MessageChannel();
  onTestFinished(() => port1.close());
  let released = 0;
  port2.on("message", (message: { type?: string }) => {
    if (message.type === "RELEASE") released++;
  });
  let releasedDuringCall: number | undefined;
  const slow = async () => {
    // Long enough for the collector to have its say: it is asked on every round.
    for (let round = 0; round < 20; round++) {
      collectGarbage();
      await new Promise((resolve) => setTimeout(resolve, 10));
    }
    releasedDuringCall = released;
    return "answer";
  };
  return { port1, port2, slow, releasedDuringCall: () => releasedDuringCall };
}

test("plain Comlink lets a proxy nobody holds be collected under its own call", async () => {
  const { port1, port2, slow, releasedDuringCall } = slowService();
  Comlink.expose({ slow }, nodeEndpoint(port2));
  const call = () => Comlink.wrap<{ slow(): string }>(nodeEndpoint(port1)).slow();
  expect(await call()).toBe("answer");
  expect(releasedDuringCall()).toBe(1);
});

test("a call pins its caller: its proxy is not released before the answer", async () => {
  const { port1, port2, slow, releasedDuringCall } = slowService();
  serve(port2, { slow });
  const call = () =>
    new Caller<{ slow(argument: undefined): string }>(port1, {
      name: "x",
      deadlineMs: 60_000,
      clock: systemClock,
    }).to.slow(undefined);
  expect(await call()).toBe("answer");
  expect(releasedDuringCall()).toBe(0);
});
