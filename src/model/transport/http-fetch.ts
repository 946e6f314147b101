import { type ClientRequest, Agent as HttpAgent, request as httpRequest, type IncomingMessage } from "node:http";
import { Agent as HttpsAgent, request as httpsRequest } from "node:https";
import { answerOf, discard } from "./answer.js";

export interface HttpFetchOptions {
  /** Connections to one host at a time; further requests wait for one. Default 1,024. */
  readonly maxSockets?: number;
  /** Idle connections to one host that are kept for the next request. Default 64. */
  readonly maxIdleSockets?: number;
  /** How long a connection may be idle before it is closed. A shorter time that the server names counts. Default 30,000. */
  readonly idleMs?: number;
}

/** How often one request follows redirects. */
const MAX_REDIRECTS = 5;
/** Statuses that say where else to ask; those of `SAME_METHOD` with the same method and body. */
const REDIRECTS = [301, 302, 303, 307, 308];
const SAME_METHOD = [307, 308];

/**
 * A `fetch` on `node:http` and `node:https` for AI SDK providers: it keeps connections alive, bounds how many there are,
 * and costs less processor per token than the global one. Each one made has connections of its own.
 *
 * @example
 * const fetch = createHttpFetch({ maxSockets: 100 });
 * export default createOpenAICompatible({ name: "local", baseURL, fetch })("tiny");
 */
export function createHttpFetch(options: HttpFetchOptions = {}): typeof fetch {
  const agents = new Agents(options);
  return async (input, init) => {
    let asked = await askedFor(input, init);
    for (let redirects = 0; ; redirects++) {
      const response = await send(asked, agents);
      const next = REDIRECTS.includes(response.statusCode ?? 0) ? response.headers.location : undefined;
      if (next === undefined || asked.redirect === "manual") return answerOf(response, asked.url, asked.signal);
      discard(response);
      if (asked.redirect === "error") throw failed(new Error(`${asked.url.origin} answers with a redirect`));
      if (redirects === MAX_REDIRECTS) throw failed(new Error(`${asked.url.origin} redirects without end`));
      asked = redirected(asked, next, response.statusCode as number); // a redirect has a status
    }
  };
}

/** Made with the first request of their protocol: whoever imports this and asks nothing has none. */
class Agents {
  readonly #options: HttpFetchOptions;
  #http: HttpAgent | undefined;
  #https: HttpsAgent | undefined;

  constructor({ maxSockets = 1_024, maxIdleSockets = 64, idleMs = 30_000 }: HttpFetchOptions) {
    for (const [name, value] of Object.entries({ maxSockets, maxIdleSockets, idleMs }))
      if (!Number.isSafeInteger(value) || value < 1) throw new TypeError(`${name} must be a whole number from 1.`);
    this.#options = { maxSockets, maxIdleSockets, idleMs };
  }

  get http(): HttpAgent {
    this.#http ??= new HttpAgent(this.#settings);
    return this.#http;
  }

  get https(): HttpsAgent {
    this.#https ??= new HttpsAgent(this.#settings);
    return this.#https;
  }

  get #settings() {
    const { maxSockets, maxIdleSockets, idleMs } = this.#options as Required<HttpFetchOptions>;
    // An agent closes only idle connections at its timeout; one that waits for an answer may wait longer.
    return {
      keepAlive: true,
      maxSockets,
      maxFreeSockets: maxIdleSockets,
      timeout: idleMs,
      scheduling: "lifo",
    } as const;
  }
}

/** A request with everything decided that sending it needs. */
interface Asked {
  readonly url: URL;
  readonly method: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly body: Uint8Array | string | undefined;
  readonly signal: AbortSignal | undefined;
  readonly redirect: "follow" | "error" | "manual";
}

type Input = Parameters<typeof fetch>[0];
type Init = NonNullable<Parameters<typeof fetch>[1]>;

async function askedFor(input: Input, init: Init = {}): Promise<Asked> {
  const isRequest = typeof input === "object" && !(input instanceof URL);
  // The rare case: what a Request and its init come to is best said by Request itself.
  const whole = isRequest ? new Request(input, init) : undefined;
  const { method = "GET", redirect = "follow" } = whole ?? init;
  const signal = whole?.signal ?? init.signal ?? undefined;
  signal?.throwIfAborted();
  const { body, type } = await bodyOf(whole === undefined ? init.body : whole.body);
  return {
    url: urlOf(isRequest ? input.url : input),
    method: method.toUpperCase(),
    headers: headersOf(whole?.headers ?? init.headers, body, type),
    body,
    signal,
    redirect: redirect as Asked["redirect"], // the three there are
  };
}

function urlOf(input: string | URL): URL {
  const url = typeof input === "string" && !URL.canParse(input) ? undefined : new URL(input);
  if (url === undefined) throw new TypeError(`Failed to parse URL from ${String(input)}`);
  if (url.protocol === "http:" || url.protocol === "https:") return url;
  throw failed(new Error(`${url.protocol} is neither http: nor https:`));
}

/** Providers send text; whatever else `fetch` takes is read whole by what `fetch` reads it with. */
async function bodyOf(given: unknown): Promise<{ readonly body: Asked["body"]; readonly type?: string | undefined }> {
  if (given === undefined || given === null) return { body: undefined };
  if (typeof given === "string") return { body: given, type: "text/plain;charset=UTF-8" };
  if (given instanceof Uint8Array) return { body: given };
  const read = new Response(given as NonNullable<Init["body"]>);
  const body = new Uint8Array(await read.arrayBuffer());
  return { body, type: read.headers.get("content-type") ?? undefined };
}

function headersOf(given: Init["headers"], body: Asked["body"], type: string | undefined): Record<string, string> {
  const headers: Record<string, string> = { accept: "*/*", "user-agent": "troupe" };
  if (type !== undefined) headers["content-type"] = type;
  for (const [name, value] of entriesOf(given ?? {})) headers[name.toLowerCase()] = String(value);
  if (body !== undefined) headers["content-length"] = String(Buffer.byteLength(body));
  return headers;
}

function entriesOf(given: NonNullable<Init["headers"]>): Iterable<readonly [string, string]> {
  if (Symbol.iterator in given) return given as Iterable<readonly [string, string]>; // Headers, or pairs
  return Object.entries(given as Record<string, string>).filter(([, value]) => value !== undefined);
}

/**
 * Where a redirect leads. Never to another host: providers take keys in headers of their own, which `fetch` would send
 * along.
 */
function redirected(asked: Asked, location: string, status: number): Asked {
  const url = new URL(location, asked.url);
  if (url.origin !== asked.url.origin)
    throw failed(
      new Error(`${asked.url.origin} redirects to ${url.origin}, which would be sent the keys of the request`),
    );
  if (SAME_METHOD.includes(status) || asked.method === "GET" || asked.method === "HEAD") return { ...asked, url };
  const { "content-type": _type, "content-length": _length, ...headers } = asked.headers;
  return { ...asked, url, method: "GET", headers, body: undefined };
}

/** Resolves with the head of the answer. */
function send({ url, method, headers, body, signal }: Asked, agents: Agents): Promise<IncomingMessage> {
  return new Promise((resolve, reject) => {
    let request: ClientRequest;
    try {
      request =
        url.protocol === "https:"
          ? httpsRequest(url, { method, headers, agent: agents.https })
          : httpRequest(url, { method, headers, agent: agents.http });
    } catch (error) {
      reject(failed(error));
      return;
    }
    const abort = () => {
      request.destroy();
      reject(signal?.reason);
    };
    signal?.addEventListener("abort", abort, { once: true });
    request.on("response", (response) => {
      signal?.removeEventListener("abort", abort);
      resolve(response);
    });
    // Once there is an answer, its own error tells of a broken connection.
    request.on("error", (error) => {
      signal?.removeEventListener("abort", abort);
      reject(signal?.aborted ? signal.reason : failed(error));
    });
    request.end(body);
  });
}

/** As `fetch` says that nothing was answered: the AI SDK knows it by these words, and by there being a cause. */
function failed(cause: unknown): TypeError {
  return new TypeError("fetch failed", { cause });
}

/**
 * {@link createHttpFetch} with its defaults.
 *
 * @example
 * import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
 * import { httpFetch } from "troupe/model";
 * export default createOpenAICompatible({ name: "local", baseURL, fetch: httpFetch })("tiny");
 */
export const httpFetch: typeof fetch = createHttpFetch();
