/** What a thread knows of itself, by functions that were taken before foreign code was imported. */
export interface OwnMeasures {
  /** Bytes outside of the heap that its objects hold: buffers above all. */
  external(): number;
  /** Timers, sockets and the like that keep its event loop busy. */
  resources(): number;
  /** Frees what nobody holds any more. */
  collect(): void;
  /** Ends the thread here and now, without another word. */
  end(): void;
}

/** To be called before anything of Node was replaced. */
export function ownMeasures(): OwnMeasures {
  const { getHeapStatistics, setFlagsFromString } = process.getBuiltinModule("node:v8");
  const { getActiveResourcesInfo, getBuiltinModule } = process;
  const { reallyExit } = process as unknown as { reallyExit(code: number): void };
  return {
    external: () => getHeapStatistics().external_memory,
    resources: () => getActiveResourcesInfo().length,
    collect() {
      setFlagsFromString("--expose-gc");
      // Not taken beforehand: few threads ever need it, and whoever replaces it is only found holding too much.
      const gc = getBuiltinModule("node:vm").runInNewContext("gc") as () => void;
      setFlagsFromString("--no-expose-gc");
      gc();
      // The memory of buffers is given back a collection later.
      gc();
    },
    end() {
      reallyExit.call(process, 1);
      // The thread is stopped a moment later, at the next turn of a loop: nothing of what comes behind may still run.
      for (;;);
    },
  };
}
