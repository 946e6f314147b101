import type { Clock, Timer } from "../async/index.js";
import { asTroupeError, type CommandSpec, exitOf } from "../kernel/index.js";
import { Child, type Sink } from "./child.js";
import type { Guard } from "./guard.js";
import { Lines } from "./lines.js";
import type { Source, Watch } from "./watch.js";

const FIRST_PAUSE_MS = 1_000;
const LONGEST_PAUSE_MS = 60_000;
/** Kept of the stream that is not watched, for the end. */
const KEPT_CHARS = 2_000;

interface CommandParts {
  readonly clock: Clock;
  readonly guard: Guard;
  readonly watch: Watch;
}

/** What a program says, line by line. */
export class CommandSource implements Source {
  readonly #spec: CommandSpec;
  readonly #parts: CommandParts;
  #child: Child | undefined;
  #starting: Promise<void> | undefined;
  #stopped = false;
  #pause: Timer | undefined;
  #pauseMs = FIRST_PAUSE_MS;
  /** The end of what it said beside. */
  #beside = "";

  private constructor(spec: CommandSpec, parts: CommandParts) {
    this.#spec = spec;
    this.#parts = parts;
  }

  /** Resolves when it runs. Rejects as starting a process does. */
  static async start(spec: CommandSpec, parts: CommandParts): Promise<CommandSource> {
    const source = new CommandSource(spec, parts);
    await source.#start();
    return source;
  }

  async stop(): Promise<void> {
    this.#stopped = true;
    this.#pause?.cancel();
    // One that is about to start is there to be ended.
    await this.#starting?.catch(() => undefined);
    await this.#child?.stop();
  }

  async #start(): Promise<void> {
    const { clock, guard } = this.#parts;
    const { argv, cwd, env, stream } = this.#spec;
    const watched = (name: "stdout" | "stderr") => (stream === name || stream === "both" ? this.#told() : this.#kept());
    this.#beside = "";
    const began = clock.now();
    const sinks = { stdout: watched("stdout"), stderr: watched("stderr") };
    const child = await Child.start({ argv, cwd, env, stdin: false }, { clock, guard, ...sinks });
    this.#child = child;
    void child.ended.then(() => this.#ended(child, clock.now() - began));
  }

  #ended({ exitCode, signal }: Child, ranMs: number): void {
    const { clock, watch } = this.#parts;
    if (this.#stopped || watch.hasEnded) return;
    if (this.#spec.onExit === "end") {
      watch.end(exitOf(exitCode, signal, this.#beside));
      return;
    }
    if (ranMs > LONGEST_PAUSE_MS) this.#pauseMs = FIRST_PAUSE_MS;
    this.#pause = clock.timeout(this.#pauseMs, () => {
      this.#starting = this.#start().then(
        () => watch.startedAgain(),
        (thrown: unknown) => {
          const { code, message } = asTroupeError(thrown, "process_not_started");
          watch.end({ reason: "failed", error: { code, message } });
        },
      );
    });
    this.#pauseMs = Math.min(LONGEST_PAUSE_MS, this.#pauseMs * 2);
  }

  #told(): Sink {
    const lines = new Lines();
    const { watch } = this.#parts;
    return { add: (chunk) => watch.add(lines.add(chunk)), end: () => watch.add(lines.end()) };
  }

  #kept(): Sink {
    const decoder = new TextDecoder();
    return {
      add: (chunk) => {
        this.#beside = (this.#beside + decoder.decode(chunk, { stream: true })).slice(-KEPT_CHARS);
      },
      end: () => undefined,
    };
  }
}
