import type { Clock } from "../async/index.js";
import type { ProcessSignal, ProcessSpec, ReadSpec } from "../kernel/index.js";
import { Guard } from "./guard.js";
import { Processes, type ProcessOwner } from "./processes.js";

interface OfOwner {
  readonly owner: ProcessOwner;
}
interface OfProcess extends OfOwner {
  readonly id: string;
}

export type ProcessThread = ReturnType<typeof processThread>;

/** What the thread that has all child processes of a runtime serves to the main thread. */
export function processThread({ clock, onClosed }: { readonly clock: Clock; readonly onClosed: () => void }) {
  const guard = new Guard(clock.uuid());
  const processes = new Processes({ clock, guard });
  return {
    start: ({ owner, spec, asked }: OfOwner & { readonly spec: ProcessSpec; readonly asked: string | undefined }) =>
      processes.start(owner, spec, asked),
    list: ({ owner }: OfOwner) => processes.list(owner),
    read: ({ owner, id, spec }: OfProcess & { readonly spec: ReadSpec }, signal: AbortSignal) =>
      processes.read(owner, id, spec, signal),
    wait: ({ owner, id, waitMs }: OfProcess & { readonly waitMs: number }, signal: AbortSignal) =>
      processes.wait(owner, id, waitMs, signal),
    write: ({ owner, id, bytes }: OfProcess & { readonly bytes: string | Uint8Array }) =>
      processes.write(owner, id, bytes),
    closeInput: ({ owner, id }: OfProcess) => processes.closeInput(owner, id),
    signal: ({ owner, id, signal }: OfProcess & { readonly signal: ProcessSignal }) =>
      processes.signal(owner, id, signal),
    stop: ({ owner, id }: OfProcess) => processes.stop(owner, id),
    endSession: ({ sessionId }: Pick<ProcessOwner, "sessionId">) => processes.endSession(sessionId),
    /** Resolves when nothing runs any more, the guard included. */
    async close(): Promise<void> {
      await processes.close();
      await guard.close();
      onClosed();
    },
  };
}
