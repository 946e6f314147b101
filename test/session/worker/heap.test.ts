import { describe, expect, test } from "vitest";
import { type Heap, HeapWatch, threadHeap } from "../../../src/session/worker/residency.js";

/** A heap that is as full as it is told, and how full once its garbage is collected. */
function watched({ atFirst = 0.1, limit = 0.8 as number | null } = {}) {
  const done: string[] = [];
  const state = { used: atFirst, live: atFirst };
  const heap: Heap = {
    share: () => state.used,
    collect: async () => {
      done.push("collect");
      state.used = state.live;
    },
  };
  const watch = new HeapWatch({
    limit,
    heap,
    makeRoom: () => done.push("make room"),
    onFull: (share) => done.push(`full ${share}`),
  });
  const look = async (used: number, live = used) => {
    Object.assign(state, { used, live });
    await watch.look();
  };
  return { done, look };
}

describe("a heap", () => {
  test("is full when it stays above the limit, what can leave has left and the garbage is collected", async () => {
    const { done, look } = watched();
    await look(0.8);
    expect(done).toEqual([]);
    await look(0.9);
    expect(done).toEqual(["make room"]);
    await look(0.9);
    expect(done).toEqual(["make room", "collect", "full 0.9"]);
  });

  test("is not when room was made, or when it was only garbage; the next collection is some looks away then", async () => {
    const { done, look } = watched();
    await look(0.9);
    await look(0.5);
    await look(0.9);
    expect(done).toEqual(["make room", "make room"]);
    await look(0.9, 0.3);
    expect(done).toEqual(["make room", "make room", "collect"]);
    for (let n = 0; n < 12; n++) await look(0.9, 0.3);
    expect(done).toHaveLength(3);
    await look(0.9);
    await look(0.9);
    expect(done.slice(3)).toEqual(["make room", "collect", "full 0.9"]);
  });

  test("says so again, but not with every look", async () => {
    const { done, look } = watched();
    for (let n = 0; n < 27; n++) await look(0.9);
    expect(done.filter((each) => each === "full 0.9")).toHaveLength(3);
  });

  test("that was nearly as full at first is not replaced: the next one would be too", async () => {
    const { done, look } = watched({ atFirst: 0.7 });
    await look(0.9);
    await look(0.9);
    expect(done).toEqual(["make room", "collect"]);
  });

  test("without a limit is left alone", async () => {
    const { done, look } = watched({ limit: null });
    for (let n = 0; n < 3; n++) await look(1);
    expect(done).toEqual([]);
  });

  test("of this thread loses its garbage when that is collected", async () => {
    let garbage: number[][] | undefined = Array.from({ length: 50 }, () =>
      Array.from({ length: 100_000 }, Math.random),
    );
    const full = threadHeap.share();
    expect(garbage).toHaveLength(50);
    garbage = undefined;
    await threadHeap.collect();
    expect(threadHeap.share()).toBeLessThan(full);
  });
});
