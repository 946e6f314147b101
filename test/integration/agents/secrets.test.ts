import { readdir, readFile } from "node:fs/promises";
import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { join } from "node:path";
import { inspect } from "node:util";
import { createTroupe, type SecretsOf, type Session } from "troupe";
import { expect, onTestFinished, test } from "vitest";
import { fixture, plugin, refusalOf, startTroupe, tempFolder, until } from "../../support/runtime.js";

const TELLS = { module: fixture("models/tells-context.mjs") };
const told = async (session: Session) => JSON.parse((await session.turn("hello")).text);

test("a model module's function is given tenant, agent, secrets and options, once for each tenant and agent on each worker", async () => {
  const asked: (string | undefined)[] = [];
  const troupe = await startTroupe({
    sessionWorkers: 1,
    model: { ...TELLS, options: { region: "eu" } },
    secrets: async (tenant) => {
      asked.push(tenant);
      return { API_KEY: `key of ${tenant}` };
    },
    agents: { "support@3": {}, "sales@1": {} },
  });
  const session = (id: string, options: Parameters<typeof troupe.session>[1]) => troupe.session(id, options);
  const acme = await told(await session("a", { tenant: "acme", agent: "support" }));
  expect(acme).toMatchObject({
    tenant: "acme",
    agent: "support@3",
    options: { region: "eu" },
    lengths: { API_KEY: "key of acme".length },
  });
  expect(await told(await session("b", { tenant: "acme", agent: "support" }))).toMatchObject({
    instance: acme.instance,
  });
  const others = [
    await told(await session("c", { tenant: "acme", agent: "sales" })),
    await told(await session("d", { tenant: "globex", agent: "support" })),
    await told(await session("e", { tenant: "acme" })),
    await told(await session("f", {})),
  ];
  expect(new Set([acme, ...others].map(({ instance }) => instance)).size).toBe(5);
  expect(asked).toEqual(["acme", "acme", "globex", "acme", undefined]);
  expect(others.at(-1)).not.toHaveProperty("tenant");
});

test("no more models are kept than modelInstances says, and one that was let go is made again", async () => {
  let asked = 0;
  const troupe = await startTroupe({
    sessionWorkers: 1,
    model: TELLS,
    modelInstances: 2,
    secrets: () => {
      asked++;
      return {};
    },
  });
  const sessions = await Promise.all(["x", "y", "z"].map((tenant) => troupe.session(tenant, { tenant })));
  for (const session of sessions) await told(session);
  expect(asked).toBe(3);
  await told(sessions[2] as Session);
  expect(asked).toBe(3);
  await told(sessions[0] as Session);
  expect(asked).toBe(4);
});

test("sessions that begin at the same time share the model that is being made", async () => {
  let asked = 0;
  const troupe = await startTroupe({
    sessionWorkers: 1,
    model: TELLS,
    secrets: async () => {
      asked++;
      return {};
    },
  });
  const sessions = await Promise.all(["a", "b", "c", "d"].map((id) => troupe.session(id, { tenant: "acme" })));
  const instances = await Promise.all(sessions.map(async (session) => (await told(session)).instance));
  expect([asked, new Set(instances).size]).toEqual([1, 1]);
});

test("a runtime without secrets and with a plain model asks nobody, and a turn costs no message for it", async () => {
  const troupe = await startTroupe({ sessionWorkers: 1 });
  const session = await troupe.session("a");
  await session.turn("warm up");
  const before = (await troupe.stats()).mainMessages;
  await session.turn("hello");
  const withSecrets = await startTroupe({
    sessionWorkers: 1,
    secrets: () => {
      throw new Error("nobody needs them");
    },
  });
  const other = await withSecrets.session("a");
  await other.turn("warm up");
  const otherBefore = (await withSecrets.stats()).mainMessages;
  await other.turn("hello");
  const after = (await troupe.stats()).mainMessages;
  const otherAfter = (await withSecrets.stats()).mainMessages;
  expect(otherAfter.lane - otherBefore.lane).toBe(after.lane - before.lane);
});

test("a turn whose secrets cannot be had is refused with secrets_failed, and the next one asks again", async () => {
  const answers: (() => unknown)[] = [
    () => {
      throw new Error("the vault is sealed");
    },
    () => ({ API_KEY: 7 }),
    () => undefined,
  ];
  const troupe = await startTroupe({ model: TELLS, secrets: (() => answers.shift()?.()) as SecretsOf });
  const session = await troupe.session("a", { tenant: "acme" });
  const error = await refusalOf(session.turn("one"));
  expect([error.code, error.retryable, error.message]).toEqual([
    "secrets_failed",
    true,
    "The secrets of tenant acme could not be had: the vault is sealed.",
  ]);
  expect((await refusalOf(session.turn("two"))).message).toContain("an object of texts");
  expect((await told(session)).lengths).toEqual({});
});

test("a function with a default for its parameter is refused: it would give every tenant the key of nobody", async () => {
  const model = fixture("models/defaulted-context.mjs");
  const error = await refusalOf(startTroupe({ model }));
  expect([error.code, error.message]).toEqual([
    "model_module_invalid",
    expect.stringContaining("Declare it without one"),
  ]);
});

/** A provider that answers one key, and quotes every other in its refusal. */
async function provider(accepts: () => string) {
  const keys: string[] = [];
  const server = createServer((request: IncomingMessage, response: ServerResponse) => {
    request.resume();
    const key = request.headers.authorization?.replace("Bearer ", "") ?? "";
    keys.push(key);
    if (key !== accepts()) {
      response.writeHead(401, { "content-type": "application/json" });
      response.end(JSON.stringify({ error: { message: `${key} is wrong, and so is ${encodeURIComponent(key)}` } }));
      return;
    }
    response.writeHead(200, { "content-type": "text/event-stream" });
    const chunk = (delta: object, finish: string | null) =>
      `data: ${JSON.stringify({ id: "1", object: "chat.completion.chunk", created: 1, model: "tiny", choices: [{ index: 0, delta, finish_reason: finish }] })}\n\n`;
    response.end(`${chunk({ role: "assistant", content: "hi" }, null)}${chunk({}, "stop")}data: [DONE]\n\n`);
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  onTestFinished(() => {
    server.closeAllConnections();
    server.close();
  });
  return { url: `http://127.0.0.1:${(server.address() as AddressInfo).port}/v1`, keys };
}

const NEW = "a-second-unlikely-passphrase";

test("a provider that refuses a key has the model made anew with the secrets of then", async () => {
  const { url, keys } = await provider(() => NEW);
  const secrets = ["first-unlikely-passphrase", NEW];
  const troupe = await startTroupe({
    sessionWorkers: 1,
    model: { module: fixture("models/keyed-provider.mjs"), options: { url } },
    secrets: () => ({ API_KEY: secrets.shift() ?? "" }),
  });
  const session = await troupe.session("a", { tenant: "acme" });
  expect((await session.turn("one")).issues.map(({ code }) => code)).toEqual(["model_auth_failed"]);
  expect((await session.turn("two")).text).toBe("hi");
  expect((await session.turn("three")).text).toBe("hi");
  expect(keys).toEqual(["first-unlikely-passphrase", NEW, NEW]);
});

test("a model is made anew when its secrets are older than secretsTtlMs", async () => {
  let asked = 0;
  const troupe = await startTroupe({
    sessionWorkers: 1,
    model: TELLS,
    secretsTtlMs: 1,
    secrets: () => {
      asked++;
      return {};
    },
  });
  const session = await troupe.session("a");
  await until("the secrets are asked for again", async () => {
    await told(session);
    return asked > 1;
  });
});

/** Every file beneath a folder. */
async function filesIn(folder: string): Promise<Buffer[]> {
  const entries = await readdir(folder, { recursive: true, withFileTypes: true });
  return Promise.all(
    entries.filter((entry) => entry.isFile()).map((entry) => readFile(join(entry.parentPath, entry.name))),
  );
}

test("secrets are in no error, result, record, activity, trace, event, log line, warning, export or file of the store", async () => {
  const secret = "an-unlikely-passphrase-7";
  const folder = await tempFolder();
  const { url } = await provider(() => "another one");
  const seen: unknown[] = [];
  const lines: string[] = [];
  const warned = (warning: Error) => seen.push(warning);
  process.on("warning", warned);
  onTestFinished(() => void process.off("warning", warned));
  const write = process.stderr.write.bind(process.stderr);
  process.stderr.write = ((chunk: string | Uint8Array, ...rest: []) => {
    lines.push(String(chunk));
    return write(chunk, ...rest);
  }) as typeof process.stderr.write;
  onTestFinished(() => {
    process.stderr.write = write;
  });
  const logged = (...line: unknown[]) => void seen.push(line);
  const keyed = fixture("models/keyed-provider.mjs");
  const troupe = await createTroupe({
    store: { path: join(folder, "store") },
    model: { module: keyed, options: { url } },
    models: {
      throws: { module: keyed, options: { url, throws: true } },
      named: { module: keyed, options: { url, named: true } },
      floats: { module: fixture("models/floats-secret.mjs") },
    },
    secrets: () => ({ API_KEY: secret }),
    plugins: [{ module: plugin("counter") }],
    agents: { "support@3": {} },
    log: { debug: logged, info: logged, warn: logged, error: logged },
    onEvent: (event) => seen.push(event),
    onTrace: (event) => seen.push(event),
  });
  const session = await troupe.session("a", { tenant: "acme", agent: "support" });
  for await (const { event } of watch(session)) seen.push(event);
  for (const model of ["throws", "named", "floats"]) {
    const turn = session.turn("hello", { model, key: model });
    seen.push(await turn.catch((error: unknown) => error));
  }
  await until("the floating rejection is told", () => seen.some((each) => inspect(each).includes("floating")));
  seen.push(await session.messages(), await session.view(), await session.info(), await session.surface());
  seen.push(troupe.agents.list(), await troupe.stats(), await troupe.exportSession("a", { format: "json" }));
  await session.fork({ id: "b" });
  await troupe.close();
  const files = await filesIn(folder);
  expect(files.length).toBeGreaterThan(0);
  const shown = [
    ...seen.map((each) => inspect(each, { depth: 20, showHidden: true, maxStringLength: null })),
    ...lines,
  ];
  // What is looked for would be found: the refusals are there, with what was hidden.
  expect(shown.some((text) => text.includes("[hidden]"))).toBe(true);
  expect(shown.filter((text) => text.includes(secret))).toEqual([]);
  expect(files.filter((bytes) => bytes.includes(secret))).toEqual([]);
});

/** What happens in a session while it has a turn that its provider refuses. */
async function* watch(session: Session) {
  const observed = session.observe();
  const turn = session.turn("hello");
  for await (const each of observed) {
    yield each;
    if (each.event.type === "committed") break;
  }
  const { issues, modelCallRecords } = await turn;
  expect(issues.map(({ code }) => code)).toEqual(["model_auth_failed"]);
  yield { event: { issues, modelCallRecords } };
}
