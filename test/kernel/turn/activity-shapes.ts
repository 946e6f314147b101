import { ACTIVITY_VERSION, type Activity, type TurnResult, type UntimedActivity } from "../../../src/kernel/index.js";

const USAGE = { inputTokens: 20, outputTokens: 7, cacheReadTokens: 4, cacheWriteTokens: 0, reasoningTokens: 3 };
const RECORD = {
  modelCallId: "t1#0",
  step: 0,
  model: "acme:large",
  route: "acme:large@https://api.acme.test/v1",
  attempts: [
    {
      attempt: 1,
      outcome: "failed",
      durationMs: 12.5,
      outputStarted: false,
      error: { code: "model_rate_limited", message: "The model's provider answered 429: slow down" },
      retry: { delayMs: 1000, counted: false },
    },
    {
      attempt: 2,
      outcome: "completed",
      durationMs: 340,
      outputStarted: true,
      usage: USAGE,
      evidence: { servedModel: "large-0401", responseId: "r1", finishReason: "end_turn" },
    },
  ],
  replayDrops: [{ route: "acme:small@https://api.acme.test/v1", messages: 2, parts: 3 }],
} as const;
const FAILED_RECORD = {
  modelCallId: "t1#0",
  step: 0,
  model: "acme:large",
  route: "acme:large@https://api.acme.test/v1",
  attempts: [
    {
      attempt: 1,
      outcome: "aborted",
      durationMs: 8,
      outputStarted: true,
      error: { code: "aborted", message: "The call was aborted." },
      partial: [{ type: "text", text: "Hel" }],
    },
  ],
} as const;
const RESULT: TurnResult = {
  turnId: "t1",
  turnIndex: 1,
  outcome: { type: "finished", text: "It rains.", value: { mm: 3 } },
  text: "It rains.",
  usage: USAGE,
  modelCalls: 1,
  toolCalls: [
    {
      callId: "c1",
      toolName: "look",
      args: {},
      output: { status: "success", value: "rain" },
      durationMs: 1,
      completed: 0,
    },
  ],
  issues: [{ kind: "plugin", code: "hook_failed", message: "It failed.", pluginId: "acme.p" }],
  sessionId: "s",
  revision: 1,
  modelCallRecords: [],
};

const USAGE_JSON = '{"inputTokens":20,"outputTokens":7,"cacheReadTokens":4,"cacheWriteTokens":0,"reasoningTokens":3}';
const RECORD_JSON = `{"modelCallId":"t1#0","step":0,"model":"acme:large","route":"acme:large@https://api.acme.test/v1","attempts":[{"attempt":1,"outcome":"failed","durationMs":12.5,"outputStarted":false,"error":{"code":"model_rate_limited","message":"The model's provider answered 429: slow down"},"retry":{"delayMs":1000,"counted":false}},{"attempt":2,"outcome":"completed","durationMs":340,"outputStarted":true,"usage":${USAGE_JSON},"evidence":{"servedModel":"large-0401","responseId":"r1","finishReason":"end_turn"}}],"replayDrops":[{"route":"acme:small@https://api.acme.test/v1","messages":2,"parts":3}]}`;
const FAILED_JSON = `{"modelCallId":"t1#0","step":0,"model":"acme:large","route":"acme:large@https://api.acme.test/v1","attempts":[{"attempt":1,"outcome":"aborted","durationMs":8,"outputStarted":true,"error":{"code":"aborted","message":"The call was aborted."},"partial":[{"type":"text","text":"Hel"}]}]}`;

/**
 * Every variant with the JSON it is, each as bare and as full as it comes, but for its time. A variant without an entry
 * here does not compile; an entry whose JSON changes is a change of the version.
 */
const UNTIMED: {
  readonly [T in Activity["type"]]: readonly (readonly [Extract<UntimedActivity, { type: T }>, string])[];
} = {
  turn_started: [
    [
      { type: "turn_started", version: ACTIVITY_VERSION, turnId: "t1", turnIndex: 1 },
      '{"type":"turn_started","version":1,"turnId":"t1","turnIndex":1}',
    ],
  ],
  model_call_started: [
    [
      { type: "model_call_started", modelCallId: "t1#0", step: 0 },
      '{"type":"model_call_started","modelCallId":"t1#0","step":0}',
    ],
  ],
  text_delta: [[{ type: "text_delta", blockId: "b", text: "Hel" }, '{"type":"text_delta","blockId":"b","text":"Hel"}']],
  reasoning_delta: [
    [{ type: "reasoning_delta", blockId: "r", text: "Hm" }, '{"type":"reasoning_delta","blockId":"r","text":"Hm"}'],
  ],
  answer_part: [
    [
      { type: "answer_part", part: { type: "source", id: "s1", source: { kind: "url", url: "https://acme.test" } } },
      '{"type":"answer_part","part":{"type":"source","id":"s1","source":{"kind":"url","url":"https://acme.test"}}}',
    ],
    [
      {
        type: "answer_part",
        part: { type: "provider_tool_result", callId: "p1", toolName: "web_search", value: [1], isError: true },
      },
      '{"type":"answer_part","part":{"type":"provider_tool_result","callId":"p1","toolName":"web_search","value":[1],"isError":true}}',
    ],
  ],
  model_retry: [
    [
      { type: "model_retry", modelCallId: "t1#0", step: 0, attempt: 1, code: "model_unreachable", delayMs: 2000 },
      '{"type":"model_retry","modelCallId":"t1#0","step":0,"attempt":1,"code":"model_unreachable","delayMs":2000}',
    ],
  ],
  model_fallback: [
    [
      { type: "model_fallback", modelCallId: "t1#0", step: 0, from: "large", to: "small", code: "model_server_error" },
      '{"type":"model_fallback","modelCallId":"t1#0","step":0,"from":"large","to":"small","code":"model_server_error"}',
    ],
  ],
  model_call_finished: [
    [
      { type: "model_call_finished", modelCallId: "t1#0", step: 0, reason: "stop", usage: USAGE },
      `{"type":"model_call_finished","modelCallId":"t1#0","step":0,"reason":"stop","usage":${USAGE_JSON}}`,
    ],
    [
      { type: "model_call_finished", modelCallId: "t1#0", step: 0, reason: "tool_calls", usage: USAGE, record: RECORD },
      `{"type":"model_call_finished","modelCallId":"t1#0","step":0,"reason":"tool_calls","usage":${USAGE_JSON},"record":${RECORD_JSON}}`,
    ],
  ],
  model_call_failed: [
    [
      { type: "model_call_failed", modelCallId: "t1#0", step: 0, code: "plugin_prompt" },
      '{"type":"model_call_failed","modelCallId":"t1#0","step":0,"code":"plugin_prompt"}',
    ],
    [
      {
        type: "model_call_failed",
        modelCallId: "t1#0",
        step: 0,
        code: "aborted",
        usage: USAGE,
        record: FAILED_RECORD,
      },
      `{"type":"model_call_failed","modelCallId":"t1#0","step":0,"code":"aborted","usage":${USAGE_JSON},"record":${FAILED_JSON}}`,
    ],
  ],
  tool_progress: [
    [
      { type: "tool_progress", callId: "c1", toolName: "look", value: { done: 3 } },
      '{"type":"tool_progress","callId":"c1","toolName":"look","value":{"done":3}}',
    ],
    [
      { type: "tool_progress", callId: "c1", toolName: "look", value: "half", missed: 2 },
      '{"type":"tool_progress","callId":"c1","toolName":"look","value":"half","missed":2}',
    ],
  ],
  tool_preliminary: [
    [
      { type: "tool_preliminary", callId: "c1", toolName: "look", output: "rain?" },
      '{"type":"tool_preliminary","callId":"c1","toolName":"look","output":"rain?"}',
    ],
    [
      { type: "tool_preliminary", callId: "c1", toolName: "look", output: null, missed: 1 },
      '{"type":"tool_preliminary","callId":"c1","toolName":"look","output":null,"missed":1}',
    ],
  ],
  tool_input_delta: [
    [
      { type: "tool_input_delta", callId: "c1", toolName: "look", text: '{"wh' },
      '{"type":"tool_input_delta","callId":"c1","toolName":"look","text":"{\\"wh"}',
    ],
  ],
  tool_call_started: [
    [
      { type: "tool_call_started", callId: "c1", toolName: "look", args: { where: [1, null] } },
      '{"type":"tool_call_started","callId":"c1","toolName":"look","args":{"where":[1,null]}}',
    ],
  ],
  tool_call_finished: [
    [
      {
        type: "tool_call_finished",
        callId: "c1",
        toolName: "look",
        output: { status: "success", value: "rain" },
        durationMs: 1,
      },
      '{"type":"tool_call_finished","callId":"c1","toolName":"look","output":{"status":"success","value":"rain"},"durationMs":1}',
    ],
    [
      {
        type: "tool_call_finished",
        callId: "c1",
        toolName: "look",
        output: { status: "failure", failure: { kind: "timeout", code: "tool_timeout", message: "Late." } },
        durationMs: 1,
      },
      '{"type":"tool_call_finished","callId":"c1","toolName":"look","output":{"status":"failure","failure":{"kind":"timeout","code":"tool_timeout","message":"Late."}},"durationMs":1}',
    ],
    [
      {
        type: "tool_call_finished",
        callId: "c1",
        toolName: "look",
        output: { status: "cancelled", message: "Enough." },
        durationMs: 1,
      },
      '{"type":"tool_call_finished","callId":"c1","toolName":"look","output":{"status":"cancelled","message":"Enough."},"durationMs":1}',
    ],
  ],
  tool_call_retry: [
    [
      { type: "tool_call_retry", callId: "c1", toolName: "look", attempt: 1, code: "tool_failed", delayMs: 100 },
      '{"type":"tool_call_retry","callId":"c1","toolName":"look","attempt":1,"code":"tool_failed","delayMs":100}',
    ],
  ],
  tool_call_pending: [
    [
      {
        type: "tool_call_pending",
        callId: "c1",
        toolName: "pay",
        key: "k",
        announcement: { kind: "external", amount: 3 },
        args: { amount: 3 },
      },
      '{"type":"tool_call_pending","callId":"c1","toolName":"pay","key":"k","announcement":{"kind":"external","amount":3},"args":{"amount":3}}',
    ],
    [
      {
        type: "tool_call_pending",
        callId: "c1",
        toolName: "pay",
        key: "k",
        announcement: { kind: "approval" },
        args: { amount: 3 },
        allowEdit: true,
        deadline: 1_000,
      },
      '{"type":"tool_call_pending","callId":"c1","toolName":"pay","key":"k","announcement":{"kind":"approval"},"args":{"amount":3},"allowEdit":true,"deadline":1000}',
    ],
  ],
  tool_call_approved: [
    [
      { type: "tool_call_approved", callId: "c1", toolName: "pay", args: { amount: 2 } },
      '{"type":"tool_call_approved","callId":"c1","toolName":"pay","args":{"amount":2}}',
    ],
  ],
  inputs_accepted: [
    [{ type: "inputs_accepted", inputIds: ["i1", "i2"] }, '{"type":"inputs_accepted","inputIds":["i1","i2"]}'],
  ],
  messages_injected: [
    [{ type: "messages_injected", pluginIds: ["acme.p"] }, '{"type":"messages_injected","pluginIds":["acme.p"]}'],
  ],
  plugin_event: [
    [
      { type: "plugin_event", pluginId: "acme.p", event: { name: "seen" } },
      '{"type":"plugin_event","pluginId":"acme.p","event":{"name":"seen"}}',
    ],
    [
      { type: "plugin_event", pluginId: "acme.p", event: { name: "seen", payload: [true] } },
      '{"type":"plugin_event","pluginId":"acme.p","event":{"name":"seen","payload":[true]}}',
    ],
  ],
  context_compacted: [
    [
      {
        type: "context_compacted",
        reason: "overflow",
        frameId: "frame-3",
        messagesBefore: 40,
        messages: 9,
        pluginId: "acme.p",
      },
      '{"type":"context_compacted","reason":"overflow","frameId":"frame-3","messagesBefore":40,"messages":9,"pluginId":"acme.p"}',
    ],
  ],
  turn_paused: [
    [
      { type: "turn_paused", code: "budget_spent", message: "All is spent." },
      '{"type":"turn_paused","code":"budget_spent","message":"All is spent."}',
    ],
  ],
  turn_resumed: [[{ type: "turn_resumed" }, '{"type":"turn_resumed"}']],
  usage: [
    [
      { type: "usage", source: "titles", model: "acme:large", usage: USAGE },
      `{"type":"usage","source":"titles","model":"acme:large","usage":${USAGE_JSON}}`,
    ],
  ],
  issue: [
    [
      { type: "issue", issue: { kind: "model", code: "output_limit", message: "Too long." } },
      '{"type":"issue","issue":{"kind":"model","code":"output_limit","message":"Too long."}}',
    ],
    [
      { type: "issue", issue: { kind: "plugin", code: "hook_failed", message: "It failed.", pluginId: "acme.p" } },
      '{"type":"issue","issue":{"kind":"plugin","code":"hook_failed","message":"It failed.","pluginId":"acme.p"}}',
    ],
  ],
  gap: [[{ type: "gap", missed: 3 }, '{"type":"gap","missed":3}']],
  turn_finished: [
    [
      { type: "turn_finished", result: RESULT },
      `{"type":"turn_finished","result":{"turnId":"t1","turnIndex":1,"outcome":{"type":"finished","text":"It rains.","value":{"mm":3}},"text":"It rains.","usage":${USAGE_JSON},"modelCalls":1,"toolCalls":[{"callId":"c1","toolName":"look","args":{},"output":{"status":"success","value":"rain"},"durationMs":1,"completed":0}],"issues":[{"kind":"plugin","code":"hook_failed","message":"It failed.","pluginId":"acme.p"}],"sessionId":"s","revision":1,"modelCallRecords":[]}}`,
    ],
    [
      {
        type: "turn_finished",
        result: {
          ...RESULT,
          outcome: { type: "stopped", reason: "cancelled", code: "cancelled", message: "Enough." },
          text: "",
          modelCalls: 0,
          toolCalls: [],
          issues: [],
          modelCallRecords: [FAILED_RECORD],
        },
      },
      `{"type":"turn_finished","result":{"turnId":"t1","turnIndex":1,"outcome":{"type":"stopped","reason":"cancelled","code":"cancelled","message":"Enough."},"text":"","usage":${USAGE_JSON},"modelCalls":0,"toolCalls":[],"issues":[],"sessionId":"s","revision":1,"modelCallRecords":[${FAILED_JSON}]}}`,
    ],
    [
      {
        type: "turn_finished",
        result: {
          ...RESULT,
          outcome: { type: "frame_switch", frameId: "f2", task: "Go on." },
          text: "",
          toolCalls: [],
          issues: [],
        },
      },
      `{"type":"turn_finished","result":{"turnId":"t1","turnIndex":1,"outcome":{"type":"frame_switch","frameId":"f2","task":"Go on."},"text":"","usage":${USAGE_JSON},"modelCalls":1,"toolCalls":[],"issues":[],"sessionId":"s","revision":1,"modelCallRecords":[]}}`,
    ],
  ],
};

type Shapes = { readonly [T in Activity["type"]]: readonly (readonly [Extract<Activity, { type: T }>, string])[] };

/** The same as they are told: each with its time, last. */
export const SHAPES = Object.fromEntries(
  Object.entries(UNTIMED).map(([type, shapes]) => [
    type,
    shapes.map(([activity, json]) => [
      { ...activity, at: 1_763_496_000_000 },
      json.replace(/\}$/, ',"at":1763496000000}'),
    ]),
  ]),
) as unknown as Shapes; // each shape of its own type with a time
