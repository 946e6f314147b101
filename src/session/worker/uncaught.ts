import { TroupeError } from "../../kernel/index.js";
import { presentableCause } from "../../model/index.js";
import type { PluginManifest } from "../../plugin/index.js";
import { encodeError, type Lane } from "../../wire/index.js";
import type { CrashedNote, FloatingNote, SessionWorkerSetup } from "../calls/index.js";
import { bounded, FloatingRejections, type ModuleOwner, originOf, told } from "../plugin-thread/index.js";

/** The models and inline plugins of a worker. `inline`: the plugins' manifests in their order, once they are loaded. */
export function ownersOf(
  { model, models, agents, plugins }: Pick<SessionWorkerSetup, "model" | "models" | "agents" | "plugins">,
  inline: readonly Pick<PluginManifest, "id">[] = [],
): ModuleOwner[] {
  const sources = [["", model] as const, ...Object.entries({ ...models, ...agents.models })];
  const modules = plugins.flatMap((plugin) => (plugin.tier === "inline" ? [plugin.module] : []));
  return [
    ...sources.flatMap(([name, source]): ModuleOwner[] =>
      source?.kind === "module" ? [{ kind: "model", name, module: source.url }] : [],
    ),
    ...modules.map((module, n): ModuleOwner => ({ kind: "plugin", name: inline[n]?.id ?? module, module })),
  ];
}

/**
 * What nobody caught on a session worker. A rejection that nobody handled breaks no invariant, so the worker goes on and
 * the main thread is told whose it is. After an exception that nobody caught anything may be half done, so the worker
 * ends, and its turns are told whose fault that is.
 */
export class UncaughtErrors {
  readonly #floating = new FloatingRejections("The session worker");
  #lane: Pick<Lane, "note" | "close"> | undefined;

  /** Whose code an error can be of. */
  get owners(): readonly ModuleOwner[] {
    return this.#floating.owners;
  }

  set owners(owners: readonly ModuleOwner[]) {
    this.#floating.owners = owners;
  }

  /** Listens to the thread it is called on. */
  listen(thread: Pick<NodeJS.Process, "on">): void {
    thread.on("unhandledRejection", (reason) => this.rejected(reason));
    thread.on("uncaughtException", (error, origin) => {
      // With `--unhandled-rejections=strict` a rejection comes this way first, and then the other way too.
      if (origin !== "unhandledRejection") this.thrown(error);
    });
  }

  connect(lane: Pick<Lane, "note" | "close">): void {
    this.#lane = lane;
    this.#floating.tellTo((report) => lane.note("floating", report satisfies FloatingNote));
  }

  /** What a model was given may stand in what it throws. */
  rejected(reason: unknown): void {
    this.#floating.rejected(readable(reason));
  }

  /** Tells the main thread, behind everything the worker has said, and throws: that ends the thread. */
  thrown(caught: unknown): never {
    const thrown = readable(caught);
    const { owner, at } = originOf(thrown, this.owners);
    const message = `Nobody caught an exception of ${told(owner, at)}, thrown in a timer or an event: ${bounded(thrown).message}. Catch it there: it ended the session worker.`;
    const error = new TroupeError("uncaught_exception", message, {
      details: { owner: owner ?? null, at: at ?? null },
      cause: bounded(thrown),
    });
    this.#lane?.note("crashed", encodeError(error) satisfies CrashedNote);
    this.#lane?.close();
    throw error;
  }
}

/** Without secrets. What cannot be read is told by others as just that. */
function readable(thrown: unknown): unknown {
  try {
    return presentableCause(thrown);
  } catch {
    return thrown;
  }
}
