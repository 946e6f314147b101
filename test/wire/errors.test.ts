import { describe, expect, it } from "vitest";
import { TroupeError } from "../../src/kernel/index.js";
import { decodeError, encodeError } from "../../src/wire/index.js";
import { rejection, startLanePeer, startService } from "./threads.js";

/** Both ways an error leaves a thread. */
const HOPS = [
  [
    "a lane",
    () => {
      const { lane } = startLanePeer();
      return (method: string) => rejection(lane.call(method, undefined));
    },
  ],
  [
    "Comlink",
    () => {
      const { call } = startService();
      return (method: string) => rejection(call(method));
    },
  ],
] as const;

describe.each(HOPS)("an error that crosses a thread by %s", (_, start) => {
  it("keeps code, retryable, details and the whole chain of causes", async () => {
    const error = await start()("typed");
    expect(error).toBeInstanceOf(TroupeError);
    expect(error).toMatchObject({
      name: "TroupeError",
      code: "budget_exhausted",
      message: "No budget left.",
      retryable: true,
      details: { max: 10, names: ["a", "b"] },
    });
    expect(error.cause).toBeInstanceOf(TroupeError);
    expect(error.cause).toMatchObject({ code: "ledger_closed", retryable: false, details: {} });
    expect((error.cause as Error).cause).toBeInstanceOf(Error);
    expect((error.cause as Error).cause).toMatchObject({ name: "RangeError", message: "page 7" });
  });

  it("keeps the stack of the thread that threw", async () => {
    const error = await start()("typed");
    expect(error.stack).toContain("throws.mjs");
  });

  it("keeps name, message, cause and its own code when it is not ours, and does not become ours", async () => {
    const error = await start()("foreign");
    expect(error).not.toBeInstanceOf(TroupeError);
    expect(error).toMatchObject({ name: "TypeError", message: "x is not a function" });
    expect(error.code).toBe("E_X");
    expect(error.cause).toMatchObject({ name: "SyntaxError", message: "line 1" });
  });

  it("keeps what Node says of a permission it refused, and of a file that is not there", async () => {
    const thrown = start();
    expect(await thrown("denied")).toMatchObject({
      name: "Error",
      code: "ERR_ACCESS_DENIED",
      permission: "FileSystemWrite",
      resource: "/var/log/audit.jsonl",
    });
    expect(await thrown("missing")).toMatchObject({ code: "ENOENT", syscall: "open", path: "/no/such/file" });
  });

  it("is an Error when a string, an object or nothing was thrown", async () => {
    const thrown = start();
    expect(await thrown("text")).toMatchObject({ name: "Thrown", message: "just a string" });
    expect(await thrown("object")).toMatchObject({ name: "Thrown", message: '{"status":500}' });
    expect(await thrown("nothing")).toMatchObject({ name: "Thrown", message: "undefined" });
    expect(await thrown("text")).toBeInstanceOf(Error);
  });

  it("keeps a cause that is no error in words", async () => {
    expect((await start()("textCause")).cause).toMatchObject({ name: "Thrown", message: "inner words" });
  });

  it("keeps the details that can cross and says the others in words", async () => {
    const { code, details } = await start()("uncloneable");
    expect(code).toBe("with_function");
    expect(details).toEqual({ limit: 3, callback: "() => 1", when: new Date(0) });
  });

  it("survives being its own cause", async () => {
    const error = await start()("cyclic");
    expect(error).toMatchObject({ code: "ouroboros", details: { n: 1 } });
    let links = 0;
    for (let at: Error | undefined = error; at !== undefined; at = at.cause as Error | undefined) links++;
    expect(links).toBe(9);
  });

  it("is still an error when it cannot even be looked at", async () => {
    expect(await start()("unreadable")).toMatchObject({
      name: "Thrown",
      message: "Something was thrown that cannot be read.",
    });
  });
});

describe("encodeError", () => {
  it("gives cloneable data for anything that can be thrown, and never throws", () => {
    const { proxy, revoke } = Proxy.revocable({}, {});
    revoke();
    const noName = Object.defineProperty(new Error("no name"), "name", {
      get() {
        throw new Error("no");
      },
    });
    const oddities = [
      null,
      0,
      10n,
      Symbol("s"),
      () => 1,
      proxy,
      noName,
      Object.create(null),
      new (class extends Error {
        override message = Symbol("m") as unknown as string;
      })(),
    ];
    for (const thrown of oddities) {
      const data = encodeError(thrown);
      expect(structuredClone(data)).toEqual(data);
      expect(decodeError(data)).toBeInstanceOf(Error);
    }
  });

  it("keeps eight causes, and leaves out what is behind them", () => {
    let error = new Error("0");
    for (let n = 1; n <= 20; n++) error = new Error(String(n), { cause: error });
    const messages: string[] = [];
    for (let at: Error | undefined = decodeError(encodeError(error)); at; at = at.cause as Error | undefined) {
      messages.push(at.message);
    }
    expect(messages).toEqual(["20", "19", "18", "17", "16", "15", "14", "13", "12"]);
  });

  it("does not share details with the error", () => {
    const details = { list: [1] };
    const data = encodeError(new TroupeError("closed", "A.", { details }));
    details.list.push(2);
    expect(data.details).toEqual({ list: [1] });
  });
});

it("An error with a text of many megabytes is cut before it is sent.", () => {
  const { message, stack = "" } = encodeError(new Error("x".repeat(17_000_000)));
  expect(message.length).toBeLessThan(70_000);
  expect(message).toMatch(/characters left out/);
  expect(stack.length).toBeLessThan(70_000);
});
