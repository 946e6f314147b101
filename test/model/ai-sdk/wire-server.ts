import { once } from "node:events";
import { createServer, type IncomingHttpHeaders, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { deferred } from "../../../src/async/index.js";

/** One scripted HTTP answer. */
export interface Reply {
  readonly status?: number;
  readonly headers?: Readonly<Record<string, string>>;
  readonly body: string | Uint8Array;
  /** Leave the response open after the body; the test ends it with `cut`, or the client does. */
  readonly hold?: boolean;
  /** Where the server destroys the socket: instead of answering, or behind the body. */
  readonly breaks?: "at_once" | "behind_body";
}

export interface WireServer {
  readonly url: string;
  /** The JSON bodies received, in order. */
  readonly requests: readonly unknown[];
  /** The headers of each. */
  readonly headers: readonly IncomingHttpHeaders[];
  /** Where each went. */
  readonly paths: readonly string[];
  /** Forgets the requests and gives these replies from now on. */
  script(...replies: [Reply, ...Reply[]]): void;
  /** Resolves when a response of this script is being held. */
  readonly held: Promise<void>;
  /** Destroys the socket under the response that is being held. */
  cut(): void;
  /** Resolves when the client has closed the response that is being held. */
  readonly leftByClient: Promise<void>;
  [Symbol.asyncDispose](): Promise<void>;
}

/** A provider on 127.0.0.1 that gives the replies in order, the last one again and again. */
export async function startWireServer(...given: [Reply, ...Reply[]]): Promise<WireServer> {
  let replies = given;
  const requests: unknown[] = [];
  const headers: IncomingHttpHeaders[] = [];
  const paths: string[] = [];
  let heldResponse: ServerResponse | undefined;
  let held = deferred();
  const clientLeft = deferred();

  const server = createServer(async (request, response) => {
    let body = "";
    for await (const piece of request.setEncoding("utf8")) body += piece;
    const reply = replies[Math.min(requests.length, replies.length - 1)] as Reply; // never empty
    requests.push(JSON.parse(body));
    headers.push(request.headers);
    paths.push(request.url ?? "");
    if (reply.breaks === "at_once") return request.socket.destroy();
    response.writeHead(reply.status ?? 200, { "content-type": "text/event-stream", ...reply.headers });
    if (reply.breaks === "behind_body") {
      response.flushHeaders();
      return response.write(reply.body, () => request.socket.destroy());
    }
    if (!reply.hold) return response.end(reply.body);
    heldResponse = response;
    response.on("close", clientLeft.resolve);
    response.write(reply.body, () => held.resolve());
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  const { port } = server.address() as AddressInfo; // an address and a port, since it listens on TCP

  return {
    url: `http://127.0.0.1:${port}/v1`,
    requests,
    headers,
    paths,
    script(...next) {
      replies = next;
      requests.length = 0;
      headers.length = 0;
      paths.length = 0;
      held = deferred();
    },
    get held() {
      return held.promise;
    },
    cut: () => void heldResponse?.socket?.destroy(),
    leftByClient: clientLeft.promise,
    async [Symbol.asyncDispose]() {
      server.closeAllConnections();
      server.close();
      await once(server, "close");
    },
  };
}

/** Chat completions as OpenAI-compatible servers stream them. */
export const openai = {
  whole: `{"id":"c8","object":"chat.completion","created":1,"model":"tiny","choices":[{"index":0,"message":{"role":"assistant","reasoning_content":"Let me think.","content":"Hello world","tool_calls":[{"id":"call_a","type":"function","function":{"name":"weather","arguments":"{\\"city\\":\\"Oslo\\"}"}}]},"finish_reason":"tool_calls"}],"usage":{"prompt_tokens":20,"completion_tokens":7,"total_tokens":27,"prompt_tokens_details":{"cached_tokens":4},"completion_tokens_details":{"reasoning_tokens":3}}}`,
  text: `data: {"id":"c1","object":"chat.completion.chunk","created":1,"model":"tiny","choices":[{"index":0,"delta":{"role":"assistant","content":""},"finish_reason":null}]}

data: {"id":"c1","object":"chat.completion.chunk","created":1,"model":"tiny","choices":[{"index":0,"delta":{"content":"Hello"},"finish_reason":null}]}

data: {"id":"c1","object":"chat.completion.chunk","created":1,"model":"tiny","choices":[{"index":0,"delta":{"content":" world"},"finish_reason":null}]}

data: {"id":"c1","object":"chat.completion.chunk","created":1,"model":"tiny","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}

data: {"id":"c1","object":"chat.completion.chunk","created":1,"model":"tiny","choices":[],"usage":{"prompt_tokens":20,"completion_tokens":7,"total_tokens":27,"prompt_tokens_details":{"cached_tokens":4},"completion_tokens_details":{"reasoning_tokens":3}}}

data: [DONE]

`,
  toolCalls: `data: {"id":"c2","created":1,"model":"tiny","choices":[{"index":0,"delta":{"role":"assistant","content":null,"tool_calls":[{"index":0,"id":"call_a","type":"function","function":{"name":"weather","arguments":""}}]},"finish_reason":null}]}

data: {"id":"c2","created":1,"model":"tiny","choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"function":{"arguments":"{\\"city\\":"}}]},"finish_reason":null}]}

data: {"id":"c2","created":1,"model":"tiny","choices":[{"index":0,"delta":{"tool_calls":[{"index":1,"id":"call_b","type":"function","function":{"name":"clock","arguments":"{\\"zone\\""}}]},"finish_reason":null}]}

data: {"id":"c2","created":1,"model":"tiny","choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"function":{"arguments":"\\"Oslo\\"}"}}]},"finish_reason":null}]}

data: {"id":"c2","created":1,"model":"tiny","choices":[{"index":0,"delta":{"tool_calls":[{"index":1,"function":{"arguments":":\\"CET\\"}"}}]},"finish_reason":null}]}

data: {"id":"c2","created":1,"model":"tiny","choices":[{"index":0,"delta":{},"finish_reason":"tool_calls"}]}

data: [DONE]

`,
  reasoning: `data: {"id":"c3","created":1,"model":"tiny","choices":[{"index":0,"delta":{"role":"assistant","reasoning_content":"Let me"},"finish_reason":null}]}

data: {"id":"c3","created":1,"model":"tiny","choices":[{"index":0,"delta":{"reasoning_content":" think."},"finish_reason":null}]}

data: {"id":"c3","created":1,"model":"tiny","choices":[{"index":0,"delta":{"content":"42"},"finish_reason":null}]}

data: {"id":"c3","created":1,"model":"tiny","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}

data: [DONE]

`,
  interleaved: `data: {"id":"c4","created":1,"model":"tiny","choices":[{"index":0,"delta":{"content":"first"},"finish_reason":null}]}

data: {"id":"c4","created":1,"model":"tiny","choices":[{"index":0,"delta":{"reasoning_content":"wait"},"finish_reason":null}]}

data: {"id":"c4","created":1,"model":"tiny","choices":[{"index":0,"delta":{"content":"second"},"finish_reason":null}]}

data: {"id":"c4","created":1,"model":"tiny","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}

data: [DONE]

`,
  unfinished: `data: {"id":"c5","created":1,"model":"tiny","choices":[{"index":0,"delta":{"role":"assistant","content":"Hel"},"finish_reason":null}]}

`,
  malformed: `data: {"id":"c6","created":1,"model":"tiny","choices":[{"index":0,"delta":{"role":"assistant","content":"Hel"},"finish_reason":null}]}

data: {"id":"c6","choices":[{"index":0,"delta":{"content":

data: {"id":"c6","created":1,"model":"tiny","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}

data: [DONE]

`,
  malformedFirst: `data: <html>gateway</html>

`,
  errorEvent: `data: {"id":"c7","created":1,"model":"tiny","choices":[{"index":0,"delta":{"content":"Hel"},"finish_reason":null}]}

data: {"error":{"message":"The server is overloaded","type":"server_error","param":null,"code":null}}

`,
  error: (message: string, code: string | null = null) =>
    `{"error":{"message":${JSON.stringify(message)},"type":"some_error","param":null,"code":${JSON.stringify(code)}}}`,
};

const MESSAGE_START = `event: message_start
data: {"type":"message_start","message":{"id":"msg_1","type":"message","role":"assistant","model":"claude-test","content":[],"stop_reason":null,"stop_sequence":null,"usage":{"input_tokens":12,"cache_creation_input_tokens":5,"cache_read_input_tokens":3,"output_tokens":1}}}

`;

/** Messages as the Anthropic API streams them. */
export const anthropic = {
  whole: `{"id":"msg_2","type":"message","role":"assistant","model":"claude-test","content":[{"type":"thinking","thinking":"Let me think.","signature":"c2lnbmVk"},{"type":"text","text":"Hello world"},{"type":"tool_use","id":"toolu_a","name":"weather","input":{"city":"Oslo"}}],"stop_reason":"tool_use","stop_sequence":null,"usage":{"input_tokens":12,"cache_creation_input_tokens":5,"cache_read_input_tokens":3,"output_tokens":7}}`,
  text: `${MESSAGE_START}event: content_block_start
data: {"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}

event: ping
data: {"type":"ping"}

event: content_block_delta
data: {"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"Hello"}}

event: content_block_delta
data: {"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":" world"}}

event: content_block_stop
data: {"type":"content_block_stop","index":0}

event: message_delta
data: {"type":"message_delta","delta":{"stop_reason":"end_turn","stop_sequence":null},"usage":{"output_tokens":7,"output_tokens_details":{"thinking_tokens":2}}}

event: message_stop
data: {"type":"message_stop"}

`,
  toolCalls: `${MESSAGE_START}event: content_block_start
data: {"type":"content_block_start","index":0,"content_block":{"type":"tool_use","id":"toolu_a","name":"weather","input":{}}}

event: content_block_delta
data: {"type":"content_block_delta","index":0,"delta":{"type":"input_json_delta","partial_json":""}}

event: content_block_delta
data: {"type":"content_block_delta","index":0,"delta":{"type":"input_json_delta","partial_json":"{\\"city\\":"}}

event: content_block_delta
data: {"type":"content_block_delta","index":0,"delta":{"type":"input_json_delta","partial_json":"\\"Oslo\\"}"}}

event: content_block_stop
data: {"type":"content_block_stop","index":0}

event: content_block_start
data: {"type":"content_block_start","index":1,"content_block":{"type":"tool_use","id":"toolu_b","name":"clock","input":{}}}

event: content_block_stop
data: {"type":"content_block_stop","index":1}

event: message_delta
data: {"type":"message_delta","delta":{"stop_reason":"tool_use","stop_sequence":null},"usage":{"output_tokens":40}}

event: message_stop
data: {"type":"message_stop"}

`,
  thinking: `${MESSAGE_START}event: content_block_start
data: {"type":"content_block_start","index":0,"content_block":{"type":"thinking","thinking":"","signature":""}}

event: content_block_delta
data: {"type":"content_block_delta","index":0,"delta":{"type":"thinking_delta","thinking":"Let me"}}

event: content_block_delta
data: {"type":"content_block_delta","index":0,"delta":{"type":"thinking_delta","thinking":" think."}}

event: content_block_delta
data: {"type":"content_block_delta","index":0,"delta":{"type":"signature_delta","signature":"c2lnbmVk"}}

event: content_block_stop
data: {"type":"content_block_stop","index":0}

event: content_block_start
data: {"type":"content_block_start","index":1,"content_block":{"type":"redacted_thinking","data":"b3BhcXVl"}}

event: content_block_stop
data: {"type":"content_block_stop","index":1}

event: content_block_start
data: {"type":"content_block_start","index":2,"content_block":{"type":"text","text":""}}

event: content_block_delta
data: {"type":"content_block_delta","index":2,"delta":{"type":"text_delta","text":"42"}}

event: content_block_stop
data: {"type":"content_block_stop","index":2}

event: message_delta
data: {"type":"message_delta","delta":{"stop_reason":"end_turn","stop_sequence":null},"usage":{"output_tokens":9}}

event: message_stop
data: {"type":"message_stop"}

`,
  unfinished: `${MESSAGE_START}event: content_block_start
data: {"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}

event: content_block_delta
data: {"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"Hel"}}

`,
  malformed: `${MESSAGE_START}event: content_block_start
data: {"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}

event: content_block_delta
data: {"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"Hel"}}

event: content_block_delta
data: {"type":"content_block_delta","index":0,"delta":{"type":

`,
  malformedFirst: `data: <html>gateway</html>

`,
  errorEvent: `${MESSAGE_START}event: content_block_start
data: {"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}

event: content_block_delta
data: {"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"Hel"}}

event: error
data: {"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}

`,
  error: (message: string, type: string | null = null) =>
    `{"type":"error","error":{"type":${JSON.stringify(type ?? "some_error")},"message":${JSON.stringify(message)}}}`,
};
