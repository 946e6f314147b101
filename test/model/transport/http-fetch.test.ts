import { once } from "node:events";
import { createServer, type IncomingMessage, type RequestListener, type Server, type ServerResponse } from "node:http";
import type { AddressInfo, Socket } from "node:net";
import { brotliCompressSync, deflateSync, gzipSync } from "node:zlib";
import { describe, expect, it, onTestFinished } from "vitest";
import { createHttpFetch } from "../../../src/model/transport/index.js";

interface Served {
  readonly url: string;
  readonly server: Server;
  /** Connections there ever were, and the most there were at once. */
  readonly sockets: { made: number; most: number };
}

async function serve(listener: RequestListener): Promise<Served> {
  const server = createServer(listener);
  const open = new Set<Socket>();
  const sockets = { made: 0, most: 0 };
  server.on("connection", (socket) => {
    open.add(socket.on("close", () => open.delete(socket)));
    sockets.made++;
    sockets.most = Math.max(sockets.most, open.size);
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  onTestFinished(async () => {
    server.closeAllConnections();
    server.close();
    await once(server, "close");
  });
  return { url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`, server, sockets };
}

async function textOf(request: IncomingMessage): Promise<string> {
  let text = "";
  for await (const piece of request.setEncoding("utf8")) text += piece;
  return text;
}

/** Answers with what it was asked, as JSON. */
const echo: RequestListener = async (request, response) => {
  const { method, url, headers } = request;
  response.setHeader("content-type", "application/json");
  response.end(JSON.stringify({ method, url, headers, body: await textOf(request) }));
};
const readChunk = async (reader: ReadableStreamDefaultReader<Uint8Array>) =>
  new TextDecoder().decode((await reader.read()).value);

describe("httpFetch sends", () => {
  it("a request as fetch does: method, headers and a text", async () => {
    const { url } = await serve(echo);
    const response = await createHttpFetch()(`${url}/v1?q=1`, {
      method: "post",
      headers: { "Content-Type": "application/json", "X-Key": "k" },
      body: '{"täxt":1}',
    });
    expect(response).toBeInstanceOf(Response);
    expect([response.ok, response.status, response.url]).toEqual([true, 200, `${url}/v1?q=1`]);
    expect(response.headers.get("content-type")).toBe("application/json");
    expect(await response.json()).toMatchObject({
      method: "POST",
      url: "/v1?q=1",
      body: '{"täxt":1}',
      headers: { "content-type": "application/json", "x-key": "k", "content-length": "11" },
    });
  });

  it.each<[string, () => RequestInit, object]>([
    ["bytes", () => ({ body: new TextEncoder().encode("b") }), { body: "b" }],
    ["a view of an ArrayBuffer", () => ({ body: new DataView(new TextEncoder().encode("v").buffer) }), { body: "v" }],
    ["a stream", () => ({ body: new Response("s").body, duplex: "half" }) as RequestInit, { body: "s" }],
    [
      "form fields",
      () => ({ body: new URLSearchParams({ a: "1" }) }),
      { body: "a=1", headers: { "content-type": "application/x-www-form-urlencoded;charset=UTF-8" } },
    ],
    [
      "headers as pairs",
      () => ({ body: "t", headers: [["x-a", "1"]] }),
      { body: "t", headers: { "x-a": "1", "content-type": "text/plain;charset=UTF-8" } },
    ],
    ["a Headers object", () => ({ headers: new Headers({ "x-a": "1" }) }), { body: "", headers: { "x-a": "1" } }],
  ])("what fetch takes: %s", async (_, init, sent) => {
    const { url } = await serve(echo);
    expect(await (await createHttpFetch()(url, { method: "POST", ...init() })).json()).toMatchObject(sent);
  });

  it("a Request with its body, and a URL", async () => {
    const { url } = await serve(echo);
    const fetch = createHttpFetch();
    const request = new Request(url, { method: "PUT", body: "r", headers: { "x-a": "1" } });
    expect(await (await fetch(request)).json()).toMatchObject({ method: "PUT", body: "r", headers: { "x-a": "1" } });
    expect(await (await fetch(new URL("/there", url))).json()).toMatchObject({ method: "GET", url: "/there" });
  });

  it("nothing to an address that is none", async () => {
    await expect(createHttpFetch()("nowhere")).rejects.toThrow(new TypeError("Failed to parse URL from nowhere"));
    await expect(createHttpFetch()("ftp://host/file")).rejects.toMatchObject({ message: "fetch failed" });
  });

  it.each([[{ maxSockets: 0 }], [{ idleMs: 0.5 }]])("nothing with settings that mean nothing: %j", (options) => {
    expect(() => createHttpFetch(options)).toThrow(TypeError);
  });
});

describe("httpFetch reads", () => {
  it("an answer piece by piece while it is being written", async () => {
    let answer: ServerResponse | undefined;
    const { url } = await serve((_, response) => {
      answer = response;
      response.write("one");
    });
    const response = await createHttpFetch()(url);
    const reader = (response.body as ReadableStream<Uint8Array>).getReader();
    expect(await readChunk(reader)).toBe("one");
    answer?.write("two");
    expect(await readChunk(reader)).toBe("two");
    answer?.end();
    expect(await reader.read()).toEqual({ done: true, value: undefined });
  });

  it("a body of many megabytes whole, without taking it all in before it is read", async () => {
    const size = 16 * 1024 * 1024;
    let written = 0;
    const { url } = await serve(async (_, response) => {
      for (; written < size; written += 65_536)
        if (!response.write(Buffer.alloc(65_536))) await once(response, "drain");
      response.end();
    });
    const response = await createHttpFetch()(url);
    const reader = (response.body as ReadableStream<Uint8Array>).getReader();
    let read = (await reader.read()).value?.byteLength ?? 0;
    // What the sockets buffer is a few megabytes at most.
    expect(written).toBeLessThan(size);
    for (let next = await reader.read(); !next.done; next = await reader.read()) read += next.value.byteLength;
    expect(read).toBe(size);
  });

  it.each([
    ["gzip", gzipSync],
    ["deflate", deflateSync],
    ["br", brotliCompressSync],
  ])("%s, though it asks for none", async (encoding, compress) => {
    let asked: unknown;
    const { url } = await serve((request, response) => {
      asked = request.headers["accept-encoding"];
      response.setHeader("content-encoding", encoding);
      response.end(compress("squeezed"));
    });
    expect(await (await createHttpFetch()(url)).text()).toBe("squeezed");
    expect(asked).toBeUndefined();
  });

  it("a status that says no, with its body and headers", async () => {
    const { url } = await serve((_, response) => {
      response.writeHead(429, { "retry-after": "3" }).end("slow down");
    });
    const response = await createHttpFetch()(url);
    expect([response.ok, response.status, response.headers.get("retry-after")]).toEqual([false, 429, "3"]);
    expect(await response.text()).toBe("slow down");
  });

  it("an answer without a body", async () => {
    const { url } = await serve((_, response) => void response.writeHead(204).end());
    const response = await createHttpFetch()(url);
    expect([response.status, response.body]).toEqual([204, null]);
  });
});

describe("connections of httpFetch", () => {
  it("are used again", async () => {
    const { url, sockets } = await serve(echo);
    const fetch = createHttpFetch();
    for (let n = 0; n < 5; n++) await (await fetch(url, { method: "POST", body: "again" })).text();
    expect(sockets.made).toBe(1);
  });

  it("are bounded: more requests than that wait for one, and all are answered", async () => {
    const { url, sockets } = await serve(echo);
    const fetch = createHttpFetch({ maxSockets: 2 });
    const answers = await Promise.all(Array.from({ length: 9 }, async () => (await fetch(url)).json()));
    expect(answers).toHaveLength(9);
    expect(sockets.most).toBeLessThanOrEqual(2);
  });

  it("are closed when the reader leaves in the middle", async () => {
    let left: Promise<unknown> | undefined;
    const { url } = await serve((_, response) => {
      left = once(response, "close");
      response.write("half");
    });
    const response = await createHttpFetch()(url);
    await response.body?.cancel();
    await left;
  });
});

describe("a request of httpFetch that is aborted", () => {
  const reason = new Error("enough");

  it("before it is sent is not sent", async () => {
    const { url, sockets } = await serve(echo);
    await expect(createHttpFetch()(url, { signal: AbortSignal.abort(reason) })).rejects.toBe(reason);
    expect(sockets.made).toBe(0);
  });

  it("while it waits for an answer rejects with the reason and leaves the server", async () => {
    const controller = new AbortController();
    let left: Promise<unknown> | undefined;
    const { url } = await serve((_, response) => {
      left = once(response, "close");
      controller.abort(reason);
    });
    await expect(createHttpFetch()(url, { signal: controller.signal })).rejects.toBe(reason);
    await left;
  });

  it("while its answer comes fails the body with the reason and leaves the server", async () => {
    const controller = new AbortController();
    let left: Promise<unknown> | undefined;
    const { url } = await serve((_, response) => {
      left = once(response, "close");
      response.write("half");
    });
    const response = await createHttpFetch()(url, { signal: controller.signal });
    const reading = response.text();
    controller.abort(reason);
    await expect(reading).rejects.toBe(reason);
    await left;
  });

  it("after its answer was read changes nothing, and leaves no listener behind", async () => {
    const { url } = await serve(echo);
    const controller = new AbortController();
    let listeners = 0;
    const { addEventListener, removeEventListener } = AbortSignal.prototype;
    controller.signal.addEventListener = (...args: Parameters<typeof addEventListener>) => {
      listeners++;
      addEventListener.apply(controller.signal, args);
    };
    controller.signal.removeEventListener = (...args: Parameters<typeof removeEventListener>) => {
      listeners--;
      removeEventListener.apply(controller.signal, args);
    };
    await (await createHttpFetch()(url, { signal: controller.signal })).text();
    expect(listeners).toBe(0);
    controller.abort(reason);
  });
});

describe("a server that fails httpFetch", () => {
  it("by not being there is a failed fetch with its cause", async () => {
    const { url, server } = await serve(echo);
    server.close();
    await once(server, "close");
    const failure = await createHttpFetch()(url).catch((error: unknown) => error);
    expect(failure).toBeInstanceOf(TypeError);
    expect(failure).toMatchObject({ message: "fetch failed", cause: { code: "ECONNREFUSED" } });
    server.listen(0);
  });

  it("by hanging up instead of answering is a failed fetch", async () => {
    const { url } = await serve((request) => request.socket.destroy());
    await expect(createHttpFetch()(url)).rejects.toMatchObject({
      message: "fetch failed",
      cause: { code: "ECONNRESET" },
    });
  });

  it.each(["identity", "gzip"])("by breaking off its answer (%s) fails the body as fetch does", async (encoding) => {
    const { url } = await serve((request, response) => {
      response.setHeader("content-encoding", encoding);
      response.write(encoding === "gzip" ? gzipSync("half").subarray(0, 12) : "half", () => request.socket.destroy());
    });
    const response = await createHttpFetch()(url);
    const failure = await response.text().catch((error: unknown) => error);
    expect(failure).toBeInstanceOf(TypeError);
    expect(failure).toMatchObject({ message: "terminated" });
  });

  it("by a header nobody can send is a failed fetch", async () => {
    const { url } = await serve(echo);
    await expect(createHttpFetch()(url, { headers: { "x-a": "two\nlines" } })).rejects.toMatchObject({
      message: "fetch failed",
    });
  });
});

describe("a redirect", () => {
  const redirecting = (status: number, location: string): RequestListener => {
    return (request, response) => {
      if (request.url === "/here") response.writeHead(status, { location }).end("elsewhere");
      else void echo(request, response);
    };
  };
  const post = { method: "POST", body: "b", headers: { "x-key": "k", "content-type": "text/x" } };

  it.each([307, 308])("of %i on the same host is followed with method and body", async (status) => {
    const { url } = await serve(redirecting(status, "/there"));
    const response = await createHttpFetch()(`${url}/here`, post);
    expect(await response.json()).toMatchObject({
      method: "POST",
      url: "/there",
      body: "b",
      headers: { "x-key": "k" },
    });
    expect(response.url).toBe(`${url}/there`);
  });

  it("of 303 is followed by a GET without a body", async () => {
    const { url } = await serve(redirecting(303, "/there"));
    const answer = await (await createHttpFetch()(`${url}/here`, post)).json();
    expect(answer).toMatchObject({ method: "GET", url: "/there", body: "" });
    expect((answer as { headers: object }).headers).not.toHaveProperty("content-type");
  });

  it("to another host is refused: it would be sent the keys", async () => {
    const elsewhere = await serve(echo);
    const { url } = await serve(redirecting(307, `${elsewhere.url}/there`));
    await expect(createHttpFetch()(`${url}/here`, post)).rejects.toMatchObject({
      message: "fetch failed",
      cause: { message: expect.stringContaining(elsewhere.url) },
    });
    expect(elsewhere.sockets.made).toBe(0);
  });

  it("without end is given up", async () => {
    let asked = 0;
    const { url } = await serve((_, response) => {
      asked++;
      response.writeHead(307, { location: "/here" }).end();
    });
    await expect(createHttpFetch()(`${url}/here`)).rejects.toMatchObject({ message: "fetch failed" });
    expect(asked).toBe(6);
  });

  it("is given back or refused when the caller says so", async () => {
    const { url } = await serve(redirecting(302, "/there"));
    const manual = await createHttpFetch()(`${url}/here`, { redirect: "manual" });
    expect([manual.status, await manual.text()]).toEqual([302, "elsewhere"]);
    await expect(createHttpFetch()(`${url}/here`, { redirect: "error" })).rejects.toThrow(TypeError);
  });
});
