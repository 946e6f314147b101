import { createHash } from "node:crypto";
import { once } from "node:events";
import { createServer, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";

/** What Anthropic does with a prefix: it is kept where it is marked, from a length on, and looked for a little way back. */
const MIN_TOKENS = 1_024;
const LOOK_BACK = 20;
const MAX_MARKS = 4;
const BYTES_PER_TOKEN = 4;

/** A request as its provider read it. */
export interface PricedRequest {
  /** Everything that was sent but for the marks, block by block in the order it is read: tools, system, messages. */
  readonly blocks: readonly string[];
  /** The blocks that are marked. */
  readonly marks: readonly number[];
  readonly usage: PrefixUsage;
}

export interface PrefixUsage {
  readonly input_tokens: number;
  readonly cache_read_input_tokens: number;
  readonly cache_creation_input_tokens: number;
}

type Block = Readonly<Record<string, unknown>>;
interface Body {
  readonly tools?: readonly Block[];
  readonly system?: string | readonly Block[];
  readonly messages: readonly { readonly role: string; readonly content: string | readonly Block[] }[];
}

/** What the provider answers: calls of this tool, one after another, and then a text. */
export interface PrefixScript {
  /** Calls each turn makes before it answers; a turn begins with what a user says. */
  readonly calls: number;
  /** The tool, of those it was given, and its arguments. */
  readonly tool: { readonly name: string; readonly input: unknown };
  readonly text: string;
}

export interface PrefixProvider extends AsyncDisposable {
  readonly url: string;
  readonly requests: readonly PricedRequest[];
}

/**
 * A server on 127.0.0.1 that speaks Anthropic's wire and prices prefixes as Anthropic does: what was marked in an earlier
 * request and is repeated to the byte is read from the cache, the rest up to the last mark is written to it, and what
 * stands behind is plain input. What it keeps it keeps for good. A token is four bytes.
 */
export async function startPrefixProvider(script: PrefixScript): Promise<PrefixProvider> {
  const requests: PricedRequest[] = [];
  const kept = new Set<string>();
  const server = createServer(async (request, response) => {
    let text = "";
    for await (const piece of request.setEncoding("utf8")) text += piece;
    const body = JSON.parse(text) as Body; // the provider package's own
    const priced = price(body, kept);
    if (priced.marks.length > MAX_MARKS) {
      const message = `A maximum of ${MAX_MARKS} blocks with cache_control may be provided. Found ${priced.marks.length}.`;
      response.writeHead(400, { "content-type": "application/json" });
      response.end(JSON.stringify({ type: "error", error: { type: "invalid_request_error", message } }));
      return;
    }
    requests.push(priced);
    answer(response, { body, script, usage: priced.usage, number: requests.length });
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  const { port } = server.address() as AddressInfo; // it listens on TCP
  return {
    url: `http://127.0.0.1:${port}/v1`,
    requests,
    async [Symbol.asyncDispose]() {
      server.closeAllConnections();
      server.close();
      await once(server, "close");
    },
  };
}

function price(body: Body, kept: Set<string>): PricedRequest {
  const blocks: string[] = [];
  const marks: number[] = [];
  const read = (block: Block, role: string) => {
    const { cache_control, ...said } = block;
    if (cache_control !== undefined) marks.push(blocks.length);
    blocks.push(JSON.stringify([role, said]));
  };
  for (const tool of body.tools ?? []) read(tool, "tool");
  for (const block of asBlocks(body.system ?? [])) read(block, "system");
  for (const { role, content } of body.messages) for (const block of asBlocks(content)) read(block, role);

  /** Behind each block: the tokens so far, and what names everything so far. */
  const ends: { readonly tokens: number; readonly name: string }[] = [];
  const hash = createHash("sha256");
  let bytes = 0;
  for (const block of blocks) {
    bytes += Buffer.byteLength(block);
    hash.update(block).update("\n");
    ends.push({ tokens: Math.ceil(bytes / BYTES_PER_TOKEN), name: hash.copy().digest("base64") });
  }
  const found = Math.max(-1, ...marks.map((mark) => lastKept(mark, ends, kept)));
  const total = ends.at(-1)?.tokens ?? 0;
  const fromCache = ends[found]?.tokens ?? 0;
  let toCache = fromCache;
  for (const mark of marks) {
    const { tokens, name } = ends[mark] as (typeof ends)[number]; // a mark is a block's
    if (tokens < MIN_TOKENS) continue;
    kept.add(name);
    toCache = Math.max(toCache, tokens);
  }
  return {
    blocks,
    marks,
    usage: {
      input_tokens: total - toCache,
      cache_read_input_tokens: fromCache,
      cache_creation_input_tokens: toCache - fromCache,
    },
  };
}

function lastKept(mark: number, ends: readonly { readonly name: string }[], kept: ReadonlySet<string>): number {
  for (let at = mark; at >= 0 && at > mark - LOOK_BACK; at--) if (kept.has(ends[at]?.name ?? "")) return at;
  return -1;
}

function asBlocks(content: string | readonly Block[]): readonly Block[] {
  return typeof content === "string" ? [{ type: "text", text: content }] : content;
}

interface Answering {
  readonly body: Body;
  readonly script: PrefixScript;
  readonly usage: PrefixUsage;
  readonly number: number;
}

function answer(response: ServerResponse, { body, script, usage, number }: Answering): void {
  const send = (event: { readonly type: string } & Readonly<Record<string, unknown>>) =>
    response.write(`event: ${event.type}\ndata: ${JSON.stringify(event)}\n\n`);
  const calls = callsInTurn(body) < script.calls && !asksForSummary(body);
  response.writeHead(200, { "content-type": "text/event-stream" });
  const message = { id: `msg_${number}`, type: "message", role: "assistant", model: "scripted", content: [] };
  send({ type: "message_start", message: { ...message, stop_reason: null, usage: { ...usage, output_tokens: 1 } } });
  const index = 0;
  if (calls) {
    const { name, input } = script.tool;
    const block = { type: "tool_use", id: `toolu_${number}`, name, input: {} };
    send({ type: "content_block_start", index, content_block: block });
    send({
      type: "content_block_delta",
      index,
      delta: { type: "input_json_delta", partial_json: JSON.stringify(input) },
    });
  } else {
    send({ type: "content_block_start", index, content_block: { type: "text", text: "" } });
    send({ type: "content_block_delta", index, delta: { type: "text_delta", text: `${script.text} (${number})` } });
  }
  send({ type: "content_block_stop", index });
  const stop_reason = calls ? "tool_use" : "end_turn";
  send({ type: "message_delta", delta: { stop_reason, stop_sequence: null }, usage: { output_tokens: 20 } });
  send({ type: "message_stop" });
  response.end();
}

/** Whoever has a conversation summed up wants a text. */
function asksForSummary({ messages }: Body): boolean {
  return asBlocks(messages.at(-1)?.content ?? "").some(({ text }) => String(text).includes("call no tools"));
}

/** Tool results since the model last ended a turn with a text. */
function callsInTurn({ messages }: Body): number {
  const last = messages.findLastIndex(
    ({ role, content }) => role === "assistant" && !asBlocks(content).some(({ type }) => type === "tool_use"),
  );
  return messages
    .slice(last + 1)
    .flatMap(({ content }) => asBlocks(content))
    .filter(({ type }) => type === "tool_result").length;
}

/** The blocks that two requests begin with alike. */
export function sharedBlocks(a: PricedRequest, b: PricedRequest): number {
  const at = a.blocks.findIndex((block, index) => block !== b.blocks[index]);
  return at < 0 ? a.blocks.length : at;
}
