import { createTroupe, type ModelSource, type Troupe, type TurnOptions } from "troupe";
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from "vitest";
import { openaiBody } from "../../model/ai-sdk/wire-bodies.js";
import { openai, type Reply, startWireServer, type WireServer } from "../../model/ai-sdk/wire-server.js";
import { expectWellFormed, only, untimed } from "../../support/activities.js";
import { gates } from "../../support/journaled.js";
import { collect, fixture, startTroupe, tempFolder, until } from "../../support/runtime.js";

const says = (text: string): Reply => ({ body: openaiBody({ says: text }) });
const modelAt = (url: string, fetch = "global"): URL =>
  fixture(`models/openai-compatible.mjs?fetch=${fetch}&base=${encodeURIComponent(url)}`);

/** Nothing here is about how long is waited. */
const HASTY = { baseDelayMs: 0 } as const;

/** Every way a provider can give no answer, what it is called, and whether it is asked again. */
const failures: readonly [what: string, reply: Reply, code: string, repeated: boolean][] = [
  ...[408, 425, 500, 502, 503, 504, 529].map((status): [string, Reply, string, boolean] => [
    `status ${status}`,
    { status, body: openai.error("not now") },
    "model_server_error",
    true,
  ]),
  ["status 429", { status: 429, body: openai.error("slow down") }, "model_rate_limited", true],
  ["a connection that is reset", { body: "", breaks: "at_once" }, "model_unreachable", true],
  ["an answer that breaks before its first event", { body: "", breaks: "behind_body" }, "model_stream_cut", true],
  ["an empty stream", { body: "" }, "model_stream_cut", true],
  ["a stream nobody can read", { body: openai.malformedFirst }, "model_stream_malformed", true],
  ["status 400", { status: 400, body: openai.error("unknown field") }, "model_request_invalid", false],
  ["status 401", { status: 401, body: openai.error("bad key") }, "model_auth_failed", false],
  ["status 501", { status: 501, body: openai.error("not here") }, "model_server_error", false],
];

describe.each(["global", "http"])(
  "a provider that fails, asked by the real client on a session worker (fetch: %s)",
  (fetch) => {
    let main: WireServer;
    let backup: WireServer;
    let troupe: Troupe;
    let sessions = 0;
    beforeAll(async () => {
      [main, backup] = [await startWireServer(says("?")), await startWireServer(says("?"))];
      troupe = await createTroupe({
        sessionWorkers: 1,
        model: modelAt(main.url, fetch),
        models: { backup: modelAt(backup.url, fetch) },
        modelRetry: HASTY,
      });
    });
    afterAll(async () => {
      await troupe.close();
      await Promise.all([main, backup].map((server) => server[Symbol.asyncDispose]()));
    });

    /** One turn against these replies, with everything it showed. */
    const turnWith = async (replies: [Reply, ...Reply[]], options?: TurnOptions) => {
      main.script(...replies);
      backup.script(says("from the backup"));
      const turn = (await troupe.session(`s${sessions++}`)).turn("hi", options);
      const activities = await collect(turn);
      expectWellFormed(activities);
      return { activities, result: await turn, requests: [main.requests.length, backup.requests.length] };
    };

    test.each(failures.filter(([, , , repeated]) => repeated))(
      "%s once costs one more request, and the turn has its answer",
      async (_, reply, code) => {
        const { activities, result, requests } = await turnWith([reply, says("hello")]);
        expect(result.text).toBe("hello");
        expect(requests).toEqual([2, 0]);
        expect(only(activities, "model_retry")).toMatchObject([{ attempt: 1, code }]);
        expect(result.modelCallRecords).toMatchObject([
          {
            model: "local.chat:tiny",
            attempts: [
              { attempt: 1, outcome: "failed", outputStarted: false, error: { code }, retry: { delayMs: 0 } },
              { attempt: 2, outcome: "completed", firstTokenMs: expect.any(Number) },
            ],
          },
        ]);
      },
    );

    test.each(failures)(
      "%s for ever is asked as often as the policy says, and ends the turn",
      async (_, reply, code, repeated) => {
        const { activities, result, requests } = await turnWith([reply], { modelRetry: { maxAttempts: 3 } });
        expect(result.outcome).toMatchObject({ reason: "provider_error", code });
        expect(requests).toEqual([repeated ? 3 : 1, 0]);
        expect(only(activities, "model_retry")).toHaveLength(repeated ? 2 : 0);
      },
    );

    test.each(failures)(
      "%s for ever hands over to the fallback model, which answers",
      async (_, reply, code, repeated) => {
        const { activities, result, requests } = await turnWith([reply], {
          modelRetry: { maxAttempts: 2 },
          fallbackModels: ["backup"],
        });
        expect(result).toMatchObject({ text: "from the backup", modelCalls: 1 });
        expect(requests).toEqual([repeated ? 2 : 1, 1]);
        const id = "local.chat:tiny";
        expect(untimed(only(activities, "model_fallback"))).toEqual([
          { type: "model_fallback", modelCallId: "t1#0", step: 0, from: id, to: id, code },
        ]);
        const [record] = result.modelCallRecords;
        // Who answered is told by its route: both serve the same model.
        expect(record).toMatchObject({ model: id, route: `${id}@${backup.url}` });
        expect(record?.attempts.map(({ attempt, outcome, model }) => [attempt, outcome, model])).toEqual(
          (repeated ? ["failed", "failed", "completed"] : ["failed", "completed"]).map((outcome, n) => [
            n + 1,
            outcome,
            id,
          ]),
        );
      },
    );

    test("an answer that breaks behind its first event is asked for by nobody again", async () => {
      const { result, requests } = await turnWith([{ body: openai.unfinished, breaks: "behind_body" }], {
        fallbackModels: ["backup"],
      });
      expect(result.outcome).toMatchObject({ reason: "provider_error", code: "model_stream_cut" });
      expect(requests).toEqual([1, 0]);
      expect(result.modelCallRecords[0]?.attempts).toMatchObject([
        { outputStarted: true, partial: [{ type: "text", text: "Hel" }] },
      ]);
    });

    test("a provider that says when to come back is asked again then, and at once when that is past", async () => {
      const busy = (headers: Record<string, string>): Reply => ({ status: 429, headers, body: openai.error("busy") });
      const { activities, requests } = await turnWith(
        [
          busy({ "retry-after": "3600" }),
          busy({ "retry-after-ms": "1" }),
          busy({ "retry-after": "Wed, 21 Oct 2015 07:28:00 GMT" }),
          says("hello"),
        ],
        { modelRetry: { maxDelayMs: 2 } },
      );
      expect(only(activities, "model_retry").map(({ delayMs }) => delayMs)).toEqual([2, 1, 0]);
      expect(requests).toEqual([4, 0]);
    });

    test("a wait that would go past the total is not begun", async () => {
      const { result, requests } = await turnWith(
        [{ status: 503, headers: { "retry-after": "2" }, body: openai.error("busy") }],
        { modelRetry: { totalMs: 1_000 } },
      );
      expect(result.outcome).toMatchObject({ code: "model_server_error" });
      expect(requests).toEqual([1, 0]);
    });

    test("a turn's fallback model that there is not refuses the turn", async () => {
      await expect(turnWith([says("?")], { fallbackModels: ["nobody"] })).rejects.toMatchObject({
        code: "model_unknown",
      });
    });
  },
);

describe("retries and fallbacks", () => {
  const serve = async (...replies: [Reply, ...Reply[]]) => {
    const server = await startWireServer(...replies);
    onTestFinished(() => server[Symbol.asyncDispose]());
    return server;
  };
  const down: Reply = { status: 503, body: openai.error("down") };

  test("a provider nobody listens at is left for the fallback of the runtime's options", async () => {
    const [gone, there] = [await serve(says("?")), await serve(says("here"))];
    await gone[Symbol.asyncDispose]();
    const troupe = await startTroupe({
      sessionWorkers: 1,
      model: modelAt(gone.url),
      fallbackModels: [modelAt(there.url)],
      modelRetry: { ...HASTY, maxAttempts: 2 },
    });
    const { text, modelCallRecords } = await (await troupe.session("s")).turn("hi");
    expect(text).toBe("here");
    expect(there.requests).toHaveLength(1);
    expect(modelCallRecords[0]?.attempts.map(({ error }) => error?.code)).toEqual([
      "model_unreachable",
      "model_unreachable",
      undefined,
    ]);
  });

  test("a model's own policy counts over the runtime's, and the turn's over both", async () => {
    const server = await serve(down);
    const model: ModelSource = { kind: "module", url: modelAt(server.url).href, modelRetry: { maxAttempts: 3 } };
    const troupe = await startTroupe({ sessionWorkers: 1, model, modelRetry: { ...HASTY, maxAttempts: 2 } });
    const session = await troupe.session("s");
    await session.turn("hi");
    expect(server.requests).toHaveLength(3);
    await session.turn("hi", { modelRetry: { maxAttempts: 1 } });
    expect(server.requests).toHaveLength(4);
  });

  test("a turn stays with the fallback that answered it, and the next turn begins with its model again", async () => {
    const call: Reply = { body: openaiBody({ calls: [{ id: "a", name: "look", args: {} }] }) };
    const [main, backup] = [await serve(down), await serve(call, says("done"), says("again"))];
    const gate = gates();
    const troupe = await startTroupe({
      sessionWorkers: 1,
      model: modelAt(main.url),
      fallbackModels: [modelAt(backup.url)],
      modelRetry: { maxAttempts: 1 },
      tools: { look: gate.quick("look") },
    });
    const session = await troupe.session("s");
    const result = await session.turn("hi");
    expect(result).toMatchObject({ text: "done", modelCalls: 2 });
    expect([main.requests.length, backup.requests.length]).toEqual([1, 2]);
    expect(result.modelCallRecords.map(({ attempts }) => attempts.length)).toEqual([2, 1]);
    await session.turn("hi");
    expect([main.requests.length, backup.requests.length]).toEqual([2, 3]);
  });

  test("a turn taken up after its worker's death goes on with the fallback that answered, and pays nothing twice", async () => {
    const call: Reply = { body: openaiBody({ calls: [{ id: "a", name: "wait", args: {} }] }) };
    const [main, backup] = [await serve(down), await serve(call, says("done"))];
    const gate = gates();
    const troupe = await startTroupe({
      sessionWorkers: 1,
      store: { path: await tempFolder() },
      model: modelAt(main.url),
      fallbackModels: [modelAt(backup.url)],
      modelRetry: { maxAttempts: 1 },
      tools: { wait: gate.tool("wait") },
    });
    const turn = (await troupe.session("s")).turn("hi");
    const ended = turn.then((result) => result);
    await until("the tool runs", () => gate.calls.length === 1);
    await troupe.kill({ sessionWorker: 0 });
    await until("the tool runs again", () => gate.calls.length === 2);
    gate.open("wait");
    const result = await ended;
    expect(result).toMatchObject({ text: "done", modelCalls: 2 });
    expect([main.requests.length, backup.requests.length]).toEqual([1, 2]);
    expect(result.modelCallRecords.map(({ route }) => route)).toEqual(
      Array.from({ length: 2 }, () => `local.chat:tiny@${backup.url}`),
    );
  });

  test("a direct completion falls back too, and is booked under the model that answered", async () => {
    const troupe = await startTroupe({
      sessionWorkers: 1,
      model: { kind: "scripted", script: { id: "large", turns: [[]], direct: [{ fail: { status: 401 } }] } },
      fallbackModels: [{ kind: "scripted", script: { id: "small", turns: [[]], direct: [{ text: "a title" }] } }],
      plugins: [{ module: fixture("plugins/completes.mjs"), options: { text: "Name it." } }],
    });
    const session = await troupe.session("s");
    await session.turn("hi");
    const { ledger } = await session.view();
    expect(ledger.map(({ model }) => model)).toContain("small");
  });

  test.each([
    [
      "a policy with a misspelt field",
      { modelRetry: { maxAttempt: 2 } },
      'modelRetry has no option "maxAttempt". Did you mean "maxAttempts"?',
    ],
    [
      "options with a misspelt field",
      { modelOptions: { temprature: 1 } },
      'modelOptions has no option "temprature". Did you mean "temperature"?',
    ],
    ["fallback models that are no list", { fallbackModels: "backup" }, "fallbackModels must be a list of models"],
    [
      "a fallback model that is live",
      { fallbackModels: [{ id: "x" }] },
      "fallbackModels[0] must be the URL of a module",
    ],
  ])("%s is refused before anything starts", async (_, options, why) => {
    await expect(createTroupe(options as never)).rejects.toMatchObject({
      code: "invalid_options",
      message: expect.stringContaining(why),
    });
  });
});
