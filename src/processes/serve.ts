import type { Clock } from "../async/index.js";
import type { MonitorEnd, ProcessSignal, ProcessSpec, ReadSpec } from "../kernel/index.js";
import { Guard } from "./guard.js";
import { Processes, type ProcessOwner } from "./processes.js";
import { Watches, type WatchRequest } from "./watches.js";

interface OfOwner {
  readonly owner: ProcessOwner;
}
interface OfProcess extends OfOwner {
  readonly id: string;
}
interface AskedOfProcess extends OfProcess {
  /** The asker's own name for what it asks: asked for again, it is done already. */
  readonly asked: string | undefined;
}

export type ProcessThread = ReturnType<typeof processThread>;

interface OfWatch {
  readonly id: string;
}

/** What the thread that has all child processes of a runtime, and whatever it watches, serves to the main thread. */
export function processThread({ clock, onClosed }: { readonly clock: Clock; readonly onClosed: () => void }) {
  const guard = new Guard(clock.uuid());
  const processes = new Processes({ clock, guard });
  const watches = new Watches({ clock, guard });
  return {
    start: ({ owner, spec, asked }: OfOwner & { readonly spec: ProcessSpec; readonly asked: string | undefined }) =>
      processes.start(owner, spec, asked),
    list: ({ owner }: OfOwner) => processes.list(owner),
    read: ({ owner, id, spec }: OfProcess & { readonly spec: ReadSpec }, signal: AbortSignal) =>
      processes.read(owner, id, spec, signal),
    wait: ({ owner, id, waitMs }: OfProcess & { readonly waitMs: number }, signal: AbortSignal) =>
      processes.wait(owner, id, waitMs, signal),
    write: ({ owner, id, bytes, asked }: AskedOfProcess & { readonly bytes: string | Uint8Array }) =>
      processes.write(owner, id, bytes, asked),
    closeInput: ({ owner, id }: OfProcess) => processes.closeInput(owner, id),
    signal: ({ owner, id, signal, asked }: AskedOfProcess & { readonly signal: ProcessSignal }) =>
      processes.signal(owner, id, signal, asked),
    stop: ({ owner, id }: OfProcess) => processes.stop(owner, id),
    startWatch: (request: WatchRequest) => watches.start(request),
    nextNews: ({ id }: OfWatch, signal: AbortSignal) => watches.next(id, signal),
    feedWatch: ({ id, line }: OfWatch & { readonly line: string }) => watches.feed(id, line),
    stopWatch: ({ id, end }: OfWatch & { readonly end: MonitorEnd }) => watches.stop(id, end),
    async endSession({ sessionId }: Pick<ProcessOwner, "sessionId">): Promise<void> {
      await Promise.all([processes.endSession(sessionId), watches.endSession(sessionId)]);
    },
    /** Resolves when nothing runs any more, the guard included. */
    async close(): Promise<void> {
      await Promise.all([processes.close(), watches.close()]);
      await guard.close();
      onClosed();
    },
  };
}
