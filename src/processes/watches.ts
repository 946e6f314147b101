import type { Clock } from "../async/index.js";
import {
  asTroupeError,
  type FilePlace,
  type MonitorEnd,
  monitorUnknown,
  TroupeError,
  type WatchNews,
  type WatchSpec,
} from "../kernel/index.js";
import { covers } from "../wire/index.js";
import { CommandSource } from "./command-source.js";
import { FileSource } from "./file-source.js";
import type { Guard } from "./guard.js";
import { Matcher } from "./matcher.js";
import { type Source, Watch, type WatchTerms } from "./watch.js";

/** What is to be watched, as the main thread asks for it. */
export interface WatchRequest {
  /** New with every start. */
  readonly id: string;
  readonly sessionId: string;
  readonly pluginId: string;
  readonly watch: WatchSpec;
  readonly terms: WatchTerms;
  readonly place: FilePlace | null;
  /** The paths its plugin may read; null: all. */
  readonly readable: readonly string[] | null;
}

interface Known {
  readonly sessionId: string;
  readonly watch: Watch;
  /** Never rejects: whoever started it was told. */
  readonly source: Promise<Source | undefined>;
}

/** What is watched for sessions, and what comes of it. */
export class Watches {
  readonly #clock: Clock;
  readonly #guard: Guard;
  readonly #matcher = new Matcher();
  readonly #known = new Map<string, Known>();

  constructor({ clock, guard }: { readonly clock: Clock; readonly guard: Guard }) {
    this.#clock = clock;
    this.#guard = guard;
  }

  /** Resolves when it goes on, with the place in a file from which on it is told. */
  async start(request: WatchRequest): Promise<FilePlace | null> {
    const { id, sessionId, terms } = request;
    const watch: Watch = new Watch(terms, {
      clock: this.#clock,
      matcher: this.#matcher,
      onEnd: () => void this.#stopSource(id),
    });
    const starting = this.#source(request, watch);
    this.#known.set(id, { sessionId, watch, source: starting.catch(() => undefined) });
    try {
      const source = await starting;
      return source instanceof FileSource ? source.place : null;
    } catch (thrown) {
      this.#known.delete(id);
      const { code, message } = asTroupeError(thrown, "monitor_failed");
      watch.end({ reason: "failed", error: { code, message } });
      throw thrown;
    }
  }

  /** What comes of it next; its end is the last, and forgotten then. */
  async next(id: string, signal: AbortSignal): Promise<WatchNews> {
    const { watch, source } = this.#find(id);
    const news = await watch.next(signal);
    if (news.end === null) return news;
    // Told when nothing of it runs any more.
    await (await source)?.stop();
    this.#known.delete(id);
    return news;
  }

  /** A line that somebody else has found out. */
  feed(id: string, line: string): void {
    this.#find(id).watch.add([line]);
  }

  /** Resolves when nothing of it runs any more; of one that is not there nothing does. */
  async stop(id: string, end: MonitorEnd): Promise<void> {
    this.#known.get(id)?.watch.end(end);
    await this.#stopSource(id);
  }

  async endSession(sessionId: string): Promise<void> {
    const ids = [...this.#known].filter(([, known]) => known.sessionId === sessionId).map(([id]) => id);
    await Promise.all(ids.map((id) => this.stop(id, { reason: "session_closed" })));
  }

  /** Nobody is told: what is watched goes on with the next runtime. */
  async close(): Promise<void> {
    await Promise.all([...this.#known.keys()].map((id) => this.#stopSource(id)));
  }

  async #source({ watch: spec, place, readable, pluginId }: WatchRequest, watch: Watch): Promise<Source | undefined> {
    const parts = { clock: this.#clock, watch };
    if (spec.kind === "command") return CommandSource.start(spec, { ...parts, guard: this.#guard });
    if (spec.kind === "tool") return undefined;
    const check = (path: string) => {
      if (readable?.some((grant) => covers(grant, path)) === false) throw fileDenied(pluginId, path);
    };
    return FileSource.start(spec, { ...parts, place, check });
  }

  async #stopSource(id: string): Promise<void> {
    await (await this.#known.get(id)?.source)?.stop();
  }

  #find(id: string): Known {
    const known = this.#known.get(id);
    if (known === undefined) throw monitorUnknown(id);
    return known;
  }
}

function fileDenied(pluginId: string, path: string): TroupeError {
  const message = `Plugin ${pluginId} may not watch ${path}: name it, or its folder, in read in permissions of its entry.`;
  return new TroupeError("monitor_denied", message, { details: { pluginId, path, grant: { read: [path] } } });
}
