import { type Clock, deferred, within } from "../async/index.js";
import { type ProcessSignal, type ProcessSpec, TroupeError } from "../kernel/index.js";
import type { Guard } from "./guard.js";
import { type Started, signalGroup, spawnGroup } from "./spawn.js";

/** How long a group may take to end by itself once it was asked to. */
const GRACE_MS = 200;
/** A process that was killed ends at once, unless the kernel holds it. */
const KILLED_MS = 5_000;
/** Who left the group may hold its outputs: they are let go. */
const DRAIN_MS = 200;
/** So much of an output is read in so long; a process that says more waits, as it would for a slow disk. */
const WINDOW_BYTES = 1024 * 1024;
const WINDOW_MS = 20;
/** What may wait to be read by a process. */
const MAX_UNREAD = 1024 * 1024;

/** What takes the bytes of an output as they come. */
export interface Sink {
  add(chunk: Uint8Array): void;
  end(): void;
}

interface ChildParts {
  readonly clock: Clock;
  readonly guard: Guard;
  readonly stdout: Sink;
  readonly stderr: Sink;
}

/** One process and whatever it starts, in a group that ends with it. */
export class Child {
  readonly pid: number;
  readonly #clock: Clock;
  readonly #process: Started;
  exitCode: number | null = null;
  signal: string | null = null;
  running = true;
  /** Resolves when it has ended, and nothing comes of its outputs any more. Never rejects. */
  readonly ended: Promise<void>;

  private constructor(process: Started, { clock, guard, stdout, stderr }: ChildParts) {
    this.#process = process;
    this.#clock = clock;
    this.pid = process.pid;
    process.stdin?.on("error", () => undefined);
    process.on("error", () => undefined);
    const { promise, resolve } = deferred();
    this.ended = promise;
    const closed = deferred();
    process.once("close", closed.resolve);
    process.once("exit", (code, signal) => {
      this.running = false;
      this.exitCode = code;
      this.signal = signal;
      // Whatever it started and left behind.
      signalGroup(this.pid, "SIGKILL");
      guard.remove(this.pid);
      void within(clock, DRAIN_MS, closed.promise).then(() => {
        process.stdout?.destroy();
        process.stderr?.destroy();
        stdout.end();
        stderr.end();
        resolve();
      });
    });
    this.#follow(process.stdout, stdout);
    this.#follow(process.stderr, stderr);
  }

  static async start(spec: Omit<ProcessSpec, "keepBytes">, parts: ChildParts): Promise<Child> {
    const { guard } = parts;
    await guard.ready();
    return new Child(await spawnGroup(spec, { marks: guard.marks, onPid: (pid) => guard.add(pid) }), parts);
  }

  write(bytes: string | Uint8Array): void {
    const input = this.#process.stdin;
    if (input === null) throw inputRefused("it was started without a standard input");
    if (!this.running || input.writableEnded || input.destroyed) throw inputRefused("its standard input is closed");
    const length = typeof bytes === "string" ? Buffer.byteLength(bytes) : bytes.length;
    if (input.writableLength + length > MAX_UNREAD)
      throw inputRefused(`${input.writableLength} bytes wait to be read; ${MAX_UNREAD} may`, true);
    input.write(bytes);
  }

  closeInput(): void {
    this.#process.stdin?.end();
  }

  signalAll(signal: ProcessSignal): void {
    if (this.running) signalGroup(this.pid, signal);
  }

  /** Asks the whole group to end, and ends what does not. */
  async stop(): Promise<void> {
    if (this.running) {
      signalGroup(this.pid, "SIGTERM");
      await within(this.#clock, GRACE_MS, this.ended);
    }
    if (this.running) signalGroup(this.pid, "SIGKILL");
    await within(this.#clock, KILLED_MS, this.ended);
  }

  #follow(output: Started["stdout"], sink: Sink): void {
    let read = 0;
    let windowEnds = 0;
    output?.on("error", () => undefined);
    output?.on("data", (chunk: Uint8Array) => {
      sink.add(chunk);
      const now = this.#clock.now();
      if (now >= windowEnds) {
        read = 0;
        windowEnds = now + WINDOW_MS;
      }
      read += chunk.length;
      if (read < WINDOW_BYTES) return;
      output.pause();
      this.#clock.timeout(Math.max(1, windowEnds - now), () => output.resume()).unref();
    });
  }
}

function inputRefused(why: string, retryable = false): TroupeError {
  return new TroupeError("process_input_refused", `The process cannot be written to: ${why}.`, { retryable });
}
