import fc from "fast-check";
import { expect, test } from "vitest";
import { TroupeError } from "../../../src/kernel/index.js";
import { SharedAccess, type SharedAsk } from "../../../src/session/plugin-thread/shared-state.js";

interface Count {
  count: number;
}

const owner = (key = "k") => ({
  pluginId: "p",
  version: "1.0.0",
  definition: { key: () => key, state: (): Count => ({ count: 0 }) },
  facts: { sessionId: "s", tenant: undefined, agent: undefined },
});

/** One row, and how often it was written. `others`: somebody else writes first, so many times. */
function store(others = 0) {
  let row: { version: number; state: Uint8Array | null } = { version: 0, state: null };
  const asked: string[] = [];
  let nth = 0;
  const ask = async (args: SharedAsk): Promise<unknown> => {
    asked.push(args[0]);
    if (args[0] === "begin") return { nth: nth++, row };
    if (args[0] === "read") return { row };
    const [, , , version, state] = args;
    if (others-- > 0) row = { version: row.version + 1, state: row.state };
    if (version !== row.version) return { row };
    row = { version: version + 1, state };
    return {};
  };
  return { ask, asked, writes: () => asked.filter((step) => step === "write").length };
}

const add = (state: unknown) => void (state as Count).count++;
const refusal = (promise: Promise<unknown>): Promise<TroupeError> =>
  promise.then(
    () => expect.unreachable("it should be refused"),
    (error) => error,
  );

test("updates of one thread are made one after another, each over the last, and lose against none of their own", async () => {
  const { ask, writes } = store();
  const accesses = [new SharedAccess(owner(), ask), new SharedAccess(owner(), ask)];
  const answers = await Promise.all(Array.from({ length: 50 }, (_, n) => accesses[n % 2]?.update(add)));
  expect(answers.map((state) => (state as Count).count)).toEqual(Array.from({ length: 50 }, (_, n) => n + 1));
  expect(writes()).toBe(50);
});

test("every update takes its place at once, whoever is before it", async () => {
  const { ask, asked } = store();
  const shared = new SharedAccess(owner(), ask);
  const both = [shared.update(add), shared.update(add)];
  expect(asked).toEqual(["begin", "begin"]);
  await Promise.all(both);
  expect(asked).toEqual(["begin", "begin", "write", "write"]);
});

test("an update is made again over what somebody else stored, a thousand times, and is then refused as one to ask again", async () => {
  const lucky = store(999);
  expect(await new SharedAccess(owner("lucky"), lucky.ask).update(add)).toEqual({ count: 1 });
  expect(lucky.writes()).toBe(1_000);
  const { ask, writes } = store(1_000);
  const error = await refusal(new SharedAccess(owner("hot"), ask).update(add));
  expect(error).toBeInstanceOf(TroupeError);
  expect([error.code, error.retryable, error.details]).toEqual([
    "shared_contended",
    true,
    { pluginId: "p", key: "hot" },
  ]);
  expect(writes()).toBe(1_000);
});

test("one that fails keeps nobody behind it", async () => {
  const { ask } = store();
  const shared = new SharedAccess(owner(), ask);
  const failing = shared.update(() => {
    throw new Error("no");
  });
  const next = shared.update(add);
  expect((await refusal(failing)).message).toBe("no");
  expect(await next).toEqual({ count: 1 });
});

test("what a reader does to the state it was given changes nothing", async () => {
  const { ask } = store();
  const shared = new SharedAccess(owner(), ask);
  ((await shared.update(add)) as Count).count = 7;
  ((await shared.read()) as Count).count = 8;
  expect(await shared.read()).toEqual({ count: 1 });
});

test("n updates of a counter by threads that overtake each other are n, for every order", async () => {
  const orders = fc.array(fc.nat(3), { minLength: 1, maxLength: 30 });
  await fc.assert(
    fc.asyncProperty(orders, fc.nat(5), async (steps, others) => {
      const { ask } = store(others);
      // Each key of the queue stands for a thread: their updates do not wait for each other.
      const threads = [0, 1, 2, 3].map(
        (thread) => new SharedAccess({ ...owner(), pluginId: `p${thread}-${steps.length}` }, ask),
      );
      await Promise.all(steps.map((thread) => threads[thread]?.update(add)));
      expect(await threads[0]?.read()).toEqual({ count: steps.length });
    }),
  );
});
