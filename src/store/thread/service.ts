import type { Clock } from "../../async/index.js";
import { TroupeError } from "../../kernel/index.js";
import { moving, type Served } from "../../wire/index.js";
import { openLmdb } from "../lmdb/index.js";
import { openMemory } from "../memory/index.js";
import type { StoreBackend, StoreOptions } from "../records/index.js";
import { workOf } from "../upkeep/index.js";
import { StoreServer } from "./serve.js";
import type { StoreService } from "./store-calls.js";

/** Opens the backend the options name. Only the store worker may do this with a path: it is the one writer. */
export function openBackend(options: StoreOptions): StoreBackend {
  return "path" in options ? openLmdb(options.path, options) : openMemory(options);
}

/**
 * What the store worker serves to the main thread.
 *
 * @example
 * serve(parentPort, storeService({ clock, onClosed: () => parentPort.close() }));
 */
export function storeService({
  clock,
  onClosed,
}: {
  readonly clock: Clock;
  readonly onClosed: () => void;
}): Served<StoreService> {
  let server: StoreServer | undefined;
  const opened = (): StoreServer => {
    if (server === undefined) throw new TroupeError("store_not_open", "Open the store before using it.");
    return server;
  };
  return {
    open(options) {
      if (server !== undefined) throw new TroupeError("store_already_open", "This store worker has a store already.");
      server = new StoreServer(openBackend(options), clock);
    },
    attach: ({ port }) => opened().attach(port),
    stats: () => opened().stats(),
    unfinished: () => opened().unfinished(),
    deleteSession: (request) => opened().deleteSession(request),
    list: (request) => opened().list(request),
    prune: ({ progress, ...policy }, signal) => opened().maintenance.prune(policy, workOf(progress, signal)),
    async exportSession({ progress, ...request }, signal) {
      const bytes = await opened().maintenance.exportSession(request, workOf(progress, signal));
      return bytes === undefined ? {} : moving({ bytes }, [bytes.buffer]);
    },
    importSession: ({ progress, ...request }, signal) =>
      opened().maintenance.importSession(request, workOf(progress, signal)),
    backup: (request, signal) => opened().maintenance.backup(request, { signal }),
    crash() {
      // On a turn of its own: between two writes, and not as the failure of this call.
      clock.soon(() => {
        throw new Error("The store's thread was told to crash.");
      });
    },
    async close() {
      await server?.close();
      onClosed();
    },
  };
}
