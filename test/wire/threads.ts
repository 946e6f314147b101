import { MessageChannel, Worker } from "node:worker_threads";
import { onTestFinished } from "vitest";
import { systemClock } from "../../src/async/index.js";
import { Caller, type CallOptions, Lane, type LaneOptions, type Service } from "../../src/wire/index.js";

const fixture = (name: string) => new URL(`./fixtures/${name}.mjs`, import.meta.url);

function startWorker(name: string, options: ConstructorParameters<typeof Worker>[1] = {}) {
  const worker = new Worker(fixture(name), options);
  // A fixture that throws on purpose must not end the test run.
  worker.on("error", () => {});
  const exited = new Promise<number>((resolve) => worker.once("exit", resolve));
  onTestFinished(async () => {
    await worker.terminate();
  });
  return { worker, exited };
}

/** A lane to a real thread. */
export function startLanePeer(options: Partial<LaneOptions> = {}) {
  const { port1, port2 } = new MessageChannel();
  const started = startWorker("lane-peer", { workerData: { port: port2 }, transferList: [port2] });
  return { ...started, lane: new Lane(port1, { clock: systemClock, name: "peer", ...options }) };
}

/** A Comlink service on a real thread. */
export function startService(name = "service", deadlineMs = 60_000) {
  const { worker, exited } = startWorker(name);
  const caller = new Caller<Service>(worker, { clock: systemClock, name: "service", deadlineMs });
  const gone = exited.then(() => caller.lose());
  /** Fixtures are plain JavaScript: any method, any argument. */
  const call = (method: string, argument?: unknown, options?: CallOptions): Promise<unknown> =>
    (caller.to[method] as (argument: unknown, options?: CallOptions) => Promise<unknown>)(argument, options);
  return { worker, caller, call, gone };
}

/** Two lanes of this thread, joined. */
export function lanePair(left: Partial<LaneOptions> = {}, right: Partial<LaneOptions> = {}) {
  const { port1, port2 } = new MessageChannel();
  const lanes = {
    port1,
    port2,
    left: new Lane(port1, { clock: systemClock, name: "left", ...left }),
    right: new Lane(port2, { clock: systemClock, name: "right", ...right }),
  };
  onTestFinished(() => {
    lanes.left.close();
    lanes.right.close();
  });
  return lanes;
}

/** The error a promise rejects with. */
export async function rejection(
  promise: PromiseLike<unknown>,
): Promise<Error & { readonly code?: string; readonly details?: unknown }> {
  return promise.then(
    (value) => {
      throw new Error(`resolved with ${JSON.stringify(value)}`);
    },
    (error) => error,
  );
}

/** A promise and what settles it. */
export function deferred<T = void>() {
  let resolve!: (value: T) => void;
  const promise = new Promise<T>((done) => {
    resolve = done;
  });
  return { promise, resolve };
}
