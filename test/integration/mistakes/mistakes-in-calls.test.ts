import { createTroupe, type Session, scriptedModel, type Troupe, type TroupeOptions } from "troupe";
import { afterAll, beforeAll, expect, test } from "vitest";
import { refusalOf } from "../../support/runtime.js";

/** What a program got wrong where a misspelt name would do nothing, or something else, and nobody would be told. */
type Mistake = readonly [mistake: string, act: () => unknown, code: string, message: string];

const wrong = (options: object) => () => createTroupe(options as TroupeOptions);
const AGENT = "support@1";

/** Refused before any thread starts. */
const OPTIONS: readonly Mistake[] = [
  [
    "modul for module",
    wrong({ model: { modul: "./m.js" } }),
    "invalid_options",
    'model has no option "modul". Did you mean "module"?',
  ],
  [
    "option for options of a model",
    wrong({ model: { module: "./m.js", option: 1 } }),
    "invalid_options",
    'model has no option "option". Did you mean "options"?',
  ],
  ["a list of models", wrong({ models: ["./m.js"] }), "invalid_options", "models must be an object of models by name."],
  [
    "a fallback model nobody has",
    wrong({ models: { small: "./m.js" }, fallbackModels: ["smal"] }),
    "invalid_options",
    'fallbackModels[0] is "smal", which is no model of the runtime. Did you mean small? A module is named by URL: new URL("./x.js", import.meta.url).',
  ],
  [
    "maxMesages of a window",
    wrong({ window: { maxMesages: 10 } }),
    "invalid_window",
    'The window cannot be used: window has no option "maxMesages". Did you mean "maxMessages"?',
  ],
  [
    "sytem among cache points",
    wrong({ cache: ["sytem"] }),
    "invalid_cache_policy",
    'The cache policy cannot be used: a request has no point "sytem". Did you mean "system"?',
  ],
  [
    "true for a compaction",
    wrong({ compaction: true }),
    "invalid_compaction",
    "The compaction cannot be used: it is an object such as { at: 0.8, keepTurns: 4 }; {} takes these.",
  ],
  [
    "a percentage for a share",
    wrong({ compaction: { at: 80 } }),
    "invalid_compaction",
    "The compaction cannot be used: at must be a share of maxContextTokens: more than 0, and 1 at most.",
  ],
  [
    "prices of no model",
    wrong({ prices: { input: 1, output: 2 } }),
    "invalid_budget",
    'The budget cannot be used: prices are by model id: { "gpt-5": { input: 1.25, output: 10 } }.',
  ],
  [
    "a period there is not",
    wrong({ tenantBudgets: { default: { maxTokens: 5, period: "weekly" } } }),
    "invalid_budget",
    'The budget cannot be used: its period is "day", "month" or { ms }, from 1,000 to ten years, not "weekly".',
  ],
  [
    "a store in memory and at a path",
    wrong({ store: { memory: true, path: "./data" } }),
    "invalid_options",
    "store is in memory or at a path: give one of memory and path.",
  ],
  [
    "a text for a switch",
    wrong({ development: "no" }),
    "invalid_options",
    'development must be true or false, not "no".',
  ],
  [
    "a text for a plugin's switch",
    wrong({ plugins: [{ module: "./p.js", optional: "true" }] }),
    "invalid_options",
    'plugins[0].optional must be true or false, not "true".',
  ],
  [
    "needsApproval of the AI SDK",
    wrong({
      tools: { refund: { description: "d", inputSchema: { type: "object" }, execute: () => 1, needsApproval: true } },
    }),
    "invalid_tool",
    'Tool refund: a tool has no field "needsApproval". Did you mean "approval"?',
  ],
  [
    "steps for maxSteps of an agent",
    wrong({ agents: { [AGENT]: { limits: { steps: 3 } } } }),
    "invalid_agent",
    'The agent cannot be used: support@1.limits has no setting "steps". Did you mean "maxSteps"?',
  ],
  [
    "a built-in tool as JavaScript would call it",
    wrong({ builtInTools: ["wakeMe"] }),
    "invalid_options",
    'builtInTools has no tool "wakeMe". Did you mean "wake_me"?',
  ],
];

const PLUGIN = `export default {
  id: "acme.mail", version: "1.0.0",
  triggers: [{ resourceType: "mailbox", alias: "mail", event: "received" }],
  queries: { "mail.list": { description: "d", input: { type: "object" }, run: () => [] } },
  commands: { "mail.add": { description: "d", input: { type: "object" }, run: () => ({ output: null }) } },
  jobs: { index: { input: { type: "object" }, run: () => null } },
  actions: { "mail.ask": { description: "d", input: { type: "object" }, run: ({ ask, of }, { host }) => host[ask](of) } },
};`;

let troupe: Troupe;
let session: Session;
beforeAll(async () => {
  troupe = await createTroupe({
    sessionWorkers: 1,
    model: scriptedModel({ turns: [[{ text: "Yes." }]] }),
    models: { small: scriptedModel({ turns: [[{ text: "Yes." }]] }) },
    agents: { "support@1": {}, "support@2": {} },
    plugins: [{ module: `data:text/javascript,${encodeURIComponent(PLUGIN)}`, tier: "inline" }],
  });
  session = await troupe.session("s");
  await session.turn("hello");
});
afterAll(() => troupe?.close());

/** What JavaScript may call with anything. */
const on = () => session as unknown as Record<string, (...args: unknown[]) => unknown>;
const host = () => troupe as unknown as Record<string, (...args: unknown[]) => unknown>;
/** A service of plugins, asked by one of them: an action says what went wrong in its output. */
const asked = async (ask: string, of: unknown): Promise<never> => {
  const output = await session.action("mail.ask", { ask, of });
  throw output.status === "failure" ? output.failure : new Error("It was not refused.");
};
const IN_AN_HOUR = Date.now() + 3_600_000;

/** Told by a runtime that runs. */
const CALLS: readonly Mistake[] = [
  [
    "a model's name in a session's settings",
    () => session.configure({ model: "smal" }),
    "model_unknown",
    "There is no model smal. Did you mean small?",
  ],
  [
    "settings that are none",
    () => on().configure?.(null),
    "invalid_config",
    "The session's configuration cannot be changed: what changes is an object of settings, such as { instructions }.",
  ],
  [
    "an agent among the settings",
    () => on().configure?.({ agent: "support" }),
    "invalid_config",
    'The session\'s configuration cannot be changed: a session has no setting "agent". session.setAgent(name) gives it another one.',
  ],
  [
    "instructions with a session's opening",
    () => host().session?.("t", { instructions: "x" }),
    "invalid_options",
    'A session has no option "instructions". session.configure() says it for one session.',
  ],
  [
    "an agent nobody has",
    () => session.setAgent("suport"),
    "agent_unknown",
    "There is no agent suport. Did you mean support?",
  ],
  [
    "a version that is not there",
    () => session.setAgent("support@9"),
    "agent_unknown",
    "There is no agent support@9. There are: support@2, support@1.",
  ],
  [
    "an agent without a definition",
    () => troupe.agents.put("support@3", undefined as never),
    "invalid_agent",
    'The agent cannot be used: support@3 must be an object such as { instructions: "Be brief." }.',
  ],
  [
    "a signal for a turn",
    () => on().turn?.("x", { abortSignal: new AbortController().signal }),
    "invalid_turn_options",
    'The turn\'s options cannot be used: a turn has no option "abortSignal". turn.cancel() ends it, and session.cancel() whichever runs.',
  ],
  [
    "messages of the AI SDK for a turn's input",
    () => on().turn?.([{ role: "user", content: "x" }]),
    "invalid_turn_input",
    "The turn's input cannot be used: it is a string or { items }, not a list.",
  ],
  [
    "no input to take back",
    () => on().cancelInput?.(),
    "invalid_options",
    "an input is named by its id or its key, a text.",
  ],
  [
    "a limit of messages",
    () => on().messages?.({ limit: 5 }),
    "invalid_options",
    'messages has no option "limit". There are: from, to, frameId, records.',
  ],
  [
    "a text for a compaction's options",
    () => on().compact?.("shorter"),
    "invalid_options",
    "compact takes an object of options, not a string.",
  ],
  [
    "message for nodes",
    () => on().append?.({ message: "x" }),
    "invalid_nodes",
    'These nodes cannot be appended: it has no field "message". There are: nodes, operationId, requiresAncestorNodeId.',
  ],
  [
    "an id for a fork's options",
    () => on().fork?.("child"),
    "invalid_fork",
    "The session cannot be forked: its options are an object, such as { id, at }.",
  ],
  [
    "a restriction that is misspelt",
    () => on().fork?.({ authority: { hiddenTool: ["shell"] } }),
    "invalid_fork",
    'The session cannot be forked: authority has no field "hiddenTool". Did you mean "hiddenTools"?',
  ],
  [
    "a query that is misspelt",
    () => session.query("mail.lst"),
    "operation_unknown",
    "There is no query called mail.lst. Did you mean mail.list?",
  ],
  [
    "a command asked for as a query",
    () => session.query("mail.add"),
    "operation_unknown",
    'There is no query called mail.add. It is a command: session.command("mail.add").',
  ],
  [
    "a timeout for an operation",
    () => on().query?.("mail.list", {}, { timeoutMs: 5 }),
    "invalid_options",
    'an operation has no option "timeoutMs". There are: sessionId, key, signal.',
  ],
  [
    "waitms for waitMs",
    () => on().awaitTask?.("t", { waitms: 5 }),
    "invalid_options",
    'awaitTask has no option "waitms". Did you mean "waitMs"?',
  ],
  [
    "a trigger's option that is misspelt",
    () => host().trigger?.("mail.received", {}, { session: "s" }),
    "invalid_trigger",
    'The trigger cannot be used: an event has no field "session". Did you mean "sessions"?',
  ],
  [
    "a prompt for a schedule's input",
    () => troupe.schedules.put("k", { session: "s", at: IN_AN_HOUR, prompt: "x" } as never),
    "invalid_schedule",
    'The schedule cannot be made: a schedule has no field "prompt". Did you mean "input"?',
  ],
  [
    "an agent that a schedule's sessions cannot have",
    () => troupe.schedules.put("k", { newSession: { prefix: "d", agent: "suport" }, at: IN_AN_HOUR, input: "x" }),
    "agent_unknown",
    "There is no agent suport. Did you mean support?",
  ],
  [
    "prefx for prefix of schedules",
    () => troupe.schedules.list({ prefx: "a" } as never),
    "invalid_options",
    'schedules.list has no option "prefx". Did you mean "prefix"?',
  ],
  [
    "runing for running",
    () => host().deleteSession?.("s", { runing: "cancel" }),
    "invalid_options",
    'deleteSession has no option "runing". Did you mean "running"?',
  ],
  [
    "fil for file",
    () => host().exportSession?.("s", { fil: "s.troupe" }),
    "invalid_options",
    'exportSession has no option "fil". Did you mean "file"?',
  ],
  [
    "sessionId for id of an import",
    () => host().importSession?.("s.troupe", { sessionId: "x" }),
    "invalid_options",
    'importSession has no option "sessionId". There are: signal, onProgress, id, tenant.',
  ],
  [
    "dryrun for dryRun",
    () => host().prune?.({ dryrun: true }),
    "invalid_options",
    'prune has no option "dryrun". Did you mean "dryRun"?',
  ],
  ["a backup to nowhere", () => host().backup?.(), "invalid_options", "backup takes the path of an empty folder."],
  [
    "worker for sessionWorker",
    () => host().kill?.({ worker: 0 }),
    "invalid_options",
    'kill has no target "worker". There are: sessionWorker, plugin, processes, store, host.',
  ],
  [
    "a worker that is not there",
    () => host().recycle?.(7),
    "worker_unknown",
    "There is no session worker 7. There is one, 0.",
  ],
  [
    "session for sessions",
    () => host().inspect?.(() => {}, { session: "s" }),
    "invalid_options",
    'inspect has no option "session". Did you mean "sessions"?',
  ],
  [
    "a task's field that is misspelt",
    () => asked("spawnManagedTask", { job: "index", inptu: {} }),
    "invalid_task",
    'The task cannot be used: a task has no field "inptu". Did you mean "input"?',
  ],
  [
    "a monitor's field that is misspelt",
    () => asked("startMonitor", { id: "m", file: "/tmp/x", patern: "x" }),
    "invalid_monitor",
    'The monitor cannot be used: such a monitor has no field "patern". Did you mean "pattern"?',
  ],
  [
    "a new session's field that is misspelt",
    () => asked("createSession", { sesionId: "x" }),
    "invalid_session_request",
    'The session cannot be created: it has no field "sesionId". Did you mean "sessionId"?',
  ],
];

test.each([...OPTIONS, ...CALLS])(
  "what would do nothing, or something else, is refused in the words it was typed in: %s",
  async (_, act, code, message) => {
    const refused = await Promise.resolve()
      .then(act)
      .then(
        () => ({ code: "none", message: "It was not refused." }),
        (error: { readonly code: string; readonly message: string }) => error,
      );
    expect({ code: refused.code, message: refused.message }).toEqual({ code, message });
  },
);

test("inputs that wait are all there still after somebody took back an input without saying which", async () => {
  const waits = await troupe.session("waits");
  const turn = waits.turn("first");
  await waits.enqueue("second");
  await waits.enqueue("third");
  await refusalOf((waits as unknown as { cancelInput(): Promise<unknown> }).cancelInput());
  await turn;
  const said = async () => JSON.stringify(await waits.messages());
  await expect.poll(said).toContain("third");
  expect(await said()).toContain("second");
});
