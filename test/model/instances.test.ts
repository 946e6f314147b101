import { expect, test } from "vitest";
import { TroupeError } from "../../src/kernel/index.js";
import { type Model, type ModelContext, ModelInstances } from "../../src/model/index.js";
import { ManualClock } from "../support/manual-clock.js";

const OWNER = { tenant: "acme", agent: "support@3" };

function instances({
  secrets = async () => ({}),
  max = 8,
  ttlMs = null,
}: {
  secrets?: (tenant: string | undefined) => Promise<unknown>;
  max?: number;
  ttlMs?: number | null;
} = {}) {
  const clock = new ManualClock();
  const made: ModelContext[] = [];
  const factory = {
    url: "file:///model.js",
    options: { region: "eu" },
    make: async (context: ModelContext): Promise<Model> => {
      made.push(context);
      return { id: `model ${made.length}`, stream: () => (async function* () {})() };
    },
  };
  return { clock, made, factory, kept: new ModelInstances({ clock, max, loadMs: 1_000, ttlMs, secrets }) };
}

const errorOf = async (promise: unknown): Promise<TroupeError> => {
  try {
    await promise;
  } catch (error) {
    if (error instanceof TroupeError) return error;
  }
  throw new Error("It was expected to be refused with a TroupeError.");
};

test("a model that a module exports is the same for everybody, at once", () => {
  const model: Model = { id: "plain", stream: () => (async function* () {})() };
  const { kept } = instances();
  expect(kept.of(model, OWNER)).toBe(model);
  expect(kept.size).toBe(0);
});

test("a model that was made is there at once for the same tenant and agent, and another one is made for any other", async () => {
  const { kept, factory, made } = instances();
  const model = await kept.of(factory, OWNER);
  expect(kept.of(factory, OWNER)).toBe(model);
  expect(await kept.of(factory, { ...OWNER, tenant: undefined })).not.toBe(model);
  expect(await kept.of(factory, { ...OWNER, agent: "support@4" })).not.toBe(model);
  expect(await kept.of({ ...factory }, OWNER)).not.toBe(model);
  expect(made).toHaveLength(4);
});

test("of more models than are kept, the one that nobody asked for longest is made again", async () => {
  const { kept, factory, made } = instances({ max: 2 });
  const of = (tenant: string) => kept.of(factory, { tenant, agent: undefined });
  await of("a");
  await of("b");
  await of("a");
  await of("c");
  expect([kept.size, made.length]).toEqual([2, 3]);
  await of("a");
  expect(made).toHaveLength(3);
  await of("b");
  expect(made).toHaveLength(4);
});

test("a model whose making takes longer than it may is refused with model_load_timeout, and tried again by who asks next", async () => {
  let answers = false;
  const { kept, factory, clock } = instances({
    secrets: () => (answers ? Promise.resolve({}) : new Promise(() => undefined)),
  });
  const waiting = errorOf(kept.of(factory, OWNER));
  await clock.advance(1_000);
  const error = await waiting;
  expect([error.code, error.retryable]).toEqual(["model_load_timeout", true]);
  expect(clock.timers).toBe(0);
  answers = true;
  expect(await kept.of(factory, OWNER)).toMatchObject({ id: "model 1" });
});

test("a model is made anew when its secrets are as old as they may be, and when its provider refused them", async () => {
  const { kept, factory, clock } = instances({ ttlMs: 500 });
  const first = await kept.of(factory, OWNER);
  await clock.advance(499);
  expect(kept.of(factory, OWNER)).toBe(first);
  await clock.advance(1);
  const second = await kept.of(factory, OWNER);
  expect(second).not.toBe(first);
  kept.refused(second);
  expect(await kept.of(factory, OWNER)).toMatchObject({ id: "model 3" });
});

test("a secret is hidden in what the module throws, also as it stands in a URL, and in its causes", async () => {
  const secret = "møns ost/brød 7";
  const { kept, factory } = instances({ secrets: async () => ({ API_KEY: secret }) });
  const throws = {
    ...factory,
    make: async ({ secrets }: ModelContext): Promise<Model> => {
      const cause = new Error(`GET /${encodeURIComponent(secrets.API_KEY as string)}`);
      throw new Error(`no account for ${secrets.API_KEY}`, { cause });
    },
  };
  const error = await errorOf(kept.of(throws, OWNER));
  const words = [error.message, error.stack, (error.cause as Error).message, (error.cause as Error).stack].join();
  expect(error.message).toBe("no account for [hidden]");
  expect(words).not.toContain(secret);
  expect(words).not.toContain(encodeURIComponent(secret));
});

test("a model whose id or address holds a secret is refused, because they are stored with every call", async () => {
  const { kept, factory } = instances({ secrets: async () => ({ API_KEY: "k-123456" }) });
  const model: Model = { id: "m", route: "m@https://host/k-123456/v1", stream: () => (async function* () {})() };
  const error = await errorOf(kept.of({ ...factory, make: async () => model }, OWNER));
  expect([error.code, error.message.includes("k-123456")]).toEqual(["model_module_invalid", false]);
});

test.each([["a text"], [["a", "list"]], [{ API_KEY: 7 }]])(
  "secrets that are %j and no object of texts are refused without being quoted",
  async (given) => {
    const { kept, factory } = instances({ secrets: async () => given });
    const error = await errorOf(kept.of(factory, OWNER));
    expect([error.code, error.message]).toEqual([
      "secrets_failed",
      "The secrets of tenant acme could not be had: secrets must return an object of texts.",
    ]);
  },
);
