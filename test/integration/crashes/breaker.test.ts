import { createTroupe, type OnFailure, type Session, type Troupe, type TroupeError } from "troupe";
import { describe, expect, onTestFinished, test } from "vitest";
import { plugin, refusalOf, remembering } from "../../support/runtime.js";

/** A runtime with one session worker, whose plugin hangs when a turn's input says so. */
async function start(tier: "worker" | "inline", onFailure?: OnFailure) {
  const entry = { tier, deadlineMs: 250, ...(onFailure && { onFailure }) };
  const troupe: Troupe = await createTroupe({
    sessionWorkers: 1,
    plugins: [remembering(plugin("hangs"), entry)],
    drainMs: 500,
  });
  onTestFinished(() => troupe.close());
  const session = await troupe.session("bad");
  // The first call has to wait for its thread to get ready: what it is about here must not be a slow start.
  await session.query("hangs.asked");
  return { troupe, session, asked: () => session.query<number>("hangs.asked") };
}

/** The code of what a beforeTurn failed with. */
const causeOf = async (session: Session, input: string) =>
  ((await refusalOf(session.turn(input))).cause as TroupeError).code;

async function causes(times: number, session: Session, input: string): Promise<string[]> {
  const found: string[] = [];
  for (let n = 0; n < times; n++) found.push(await causeOf(session, input));
  return found;
}

const repeated = (times: number, code: string) => Array.from({ length: times }, () => code);

describe.each(["worker", "inline"] as const)("a hook that never answers, in the tier %s", (tier) => {
  test("is asked five times, and then its calls are refused at once as breaker_open without reaching the plugin", async () => {
    const { session, asked } = await start(tier);
    expect(await causes(5, session, "hang")).toEqual(repeated(5, "hook_timeout"));
    const error = await refusalOf(session.turn("hang"));
    expect([error.code, error.retryable]).toEqual(["plugin_prepare_turn", true]);
    const { code, retryable, message } = error.cause as TroupeError;
    expect([code, retryable]).toEqual(["breaker_open", true]);
    expect(message).toMatch(
      /^Plugin test\.hangs: beforeTurn is not asked since \d{4}-.*Z, because 5 calls in a row did not answer within 250 ms\. It is tried again in \d+ ms\.$/,
    );
    expect(await causes(3, session, "hang")).toEqual(repeated(3, "breaker_open"));
    expect(await asked()).toBe(5);
  });

  test("is refused to the session it hangs for, while other sessions of the worker have their turns", async () => {
    const { troupe, session, asked } = await start(tier);
    await causes(5, session, "hang");
    const good = await troupe.session("good");
    expect(await causeOf(session, "hang")).toBe("breaker_open");
    expect((await good.turn("hello")).outcome.type).toBe("finished");
    expect(await asked()).toBe(6);
  });

  test("is asked again by all once it has answered anybody", async () => {
    const { troupe, session, asked } = await start(tier);
    await causes(5, session, "hang");
    await (await troupe.session("good")).turn("hello");
    expect((await session.turn("hello")).outcome.type).toBe("finished");
    expect(await asked()).toBe(7);
  });

  test("is refused to every session when it hung for two", async () => {
    const { troupe, session, asked } = await start(tier);
    const other = await troupe.session("other");
    expect(await causes(3, session, "hang")).toEqual(repeated(3, "hook_timeout"));
    expect(await causes(2, other, "hang")).toEqual(repeated(2, "hook_timeout"));
    expect(await causeOf(await troupe.session("third"), "hello")).toBe("breaker_open");
    expect(await asked()).toBe(5);
  });

  test("is passed over at once under the policy skip while its breaker is open", async () => {
    const { session, asked } = await start(tier, { beforeTurn: "skip" });
    const codes: string[] = [];
    for (let n = 0; n < 7; n++) codes.push(...(await session.turn("hang")).issues.map(({ code }) => code));
    expect(codes).toEqual([...repeated(5, "hook_timeout"), ...repeated(2, "breaker_open")]);
    expect(await asked()).toBe(5);
  });

  test("is asked every time when it throws, also an error that calls itself hook_timeout", async () => {
    const { session, asked } = await start(tier);
    await causes(4, session, "hang");
    await causes(6, session, "throw");
    await causes(6, session, "lie");
    expect((await session.turn("hello")).outcome.type).toBe("finished");
    expect(await asked()).toBe(17);
  });
});
