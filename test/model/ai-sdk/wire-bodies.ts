/** One answer in the words of either wire format: what it thinks, says and calls, and how it ends. */
export interface Said {
  readonly thinks?: string;
  readonly says?: string;
  readonly calls?: readonly { readonly id: string; readonly name: string; readonly args: object }[];
  /** Default: as the answer's content has it. */
  readonly ends?: "filtered" | "length";
  readonly inputTokens?: number;
  readonly outputTokens?: number;
  /** Breaks off here, in the middle of its last call's arguments or before it says how it ends. */
  readonly unfinished?: true;
}

/** A chat completion as OpenAI-compatible servers stream it. */
export function openaiBody(said: Said): string {
  const { thinks, says, calls = [], ends, inputTokens = 20, outputTokens = 7, unfinished } = said;
  const chunk = (delta: object, finish_reason: string | null = null) => ({
    ...{ id: "c1", object: "chat.completion.chunk", created: 1, model: "tiny" },
    choices: [{ index: 0, delta, finish_reason }],
  });
  const pieces: object[] = [];
  if (thinks !== undefined) pieces.push(chunk({ reasoning_content: thinks }));
  if (says !== undefined) pieces.push(chunk({ content: says }));
  calls.forEach(({ id, name, args }, index) => {
    const text = JSON.stringify(args);
    const half = unfinished ? text.slice(0, text.length / 2) : text;
    pieces.push(chunk({ tool_calls: [{ index, id, type: "function", function: { name, arguments: half } }] }));
  });
  if (unfinished) return pieces.map(sse).join("");
  const finish = { filtered: "content_filter", length: "length" } as const;
  pieces.push(chunk({}, ends ? finish[ends] : calls.length > 0 ? "tool_calls" : "stop"));
  const usage = {
    prompt_tokens: inputTokens,
    completion_tokens: outputTokens,
    total_tokens: inputTokens + outputTokens,
  };
  pieces.push({ ...chunk({}), choices: [], usage });
  return `${pieces.map(sse).join("")}data: [DONE]\n\n`;
}

/** A message as the Anthropic API streams it. What it thinks is signed. */
export function anthropicBody(said: Said): string {
  const { thinks, says, calls = [], ends, inputTokens = 20, outputTokens = 7, unfinished } = said;
  const events: { type: string }[] = [messageStart(inputTokens)];
  let index = 0;
  const block = (content_block: object, ...deltas: object[]) => {
    events.push({ type: "content_block_start", index, content_block } as { type: string });
    for (const delta of deltas) events.push({ type: "content_block_delta", index, delta } as { type: string });
    if (!unfinished) events.push({ type: "content_block_stop", index } as { type: string });
    index++;
  };
  if (thinks !== undefined) {
    block(
      { type: "thinking", thinking: "", signature: "" },
      { type: "thinking_delta", thinking: thinks },
      { type: "signature_delta", signature: `signed ${thinks}` },
    );
  }
  if (says !== undefined) block({ type: "text", text: "" }, { type: "text_delta", text: says });
  for (const { id, name, args } of calls) {
    const text = JSON.stringify(args);
    const partial_json = unfinished ? text.slice(0, text.length / 2) : text;
    block({ type: "tool_use", id, name, input: {} }, { type: "input_json_delta", partial_json });
  }
  if (!unfinished) {
    const finish = { filtered: "refusal", length: "max_tokens" } as const;
    const stop_reason = ends ? finish[ends] : calls.length > 0 ? "tool_use" : "end_turn";
    const usage = { output_tokens: outputTokens };
    events.push({ type: "message_delta", delta: { stop_reason, stop_sequence: null }, usage } as { type: string });
    events.push({ type: "message_stop" });
  }
  return events.map((event) => `event: ${event.type}\n${sse(event)}`).join("");
}

function messageStart(input_tokens: number): { type: string } {
  const message = {
    ...{ id: "msg_1", type: "message", role: "assistant", model: "claude-test", content: [] },
    ...{ stop_reason: null, stop_sequence: null, usage: { input_tokens, output_tokens: 1 } },
  };
  return { type: "message_start", message } as { type: string };
}

function sse(event: object): string {
  return `data: ${JSON.stringify(event)}\n\n`;
}
