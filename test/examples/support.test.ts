import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtemp, readdir, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { NODE_ARGS, until } from "../support/runtime.js";

const PROGRAM = fileURLToPath(new URL("../../dist/examples/support/main.js", import.meta.url));
/** Between the pieces of the long answer: as good as for ever, so that it is always found in the middle. */
const FOR_EVER = "3600000";

/** The program, running as a process of its own. */
class Desk {
  readonly process: ChildProcess;
  readonly url: string;
  readonly ended: Promise<unknown[]>;

  private constructor(process: ChildProcess, url: string, ended: Promise<unknown[]>) {
    this.process = process;
    this.url = url;
    this.ended = ended;
  }

  static async open(folder: string, ...args: readonly string[]): Promise<Desk> {
    const all = [...NODE_ARGS, PROGRAM, "--folder", folder, "--port", "0", "--questions", "3", ...args];
    const program = spawn(process.execPath, all, { stdio: ["ignore", "pipe", "inherit"] });
    const ended = once(program, "exit");
    const lines = createInterface({ input: program.stdout as NonNullable<typeof program.stdout> });
    const [url] = (await Promise.race([once(lines, "line"), ended])) as [unknown];
    if (typeof url !== "string") throw new Error(`The program ended before it listened, with ${url}.`);
    return new Desk(program, url, ended);
  }

  async end(signal: NodeJS.Signals): Promise<unknown[]> {
    this.process.kill(signal);
    return this.ended;
  }

  tenant(name: string): Tenant {
    return new Tenant(this.url, name);
  }
}

interface Page {
  readonly messages: readonly { readonly role: string; readonly text: string; readonly interrupted?: true }[];
  readonly running: unknown;
}

/** What a page of one tenant asks the program. */
class Tenant {
  readonly #url: string;
  readonly #name: string;

  constructor(url: string, name: string) {
    this.#url = url;
    this.#name = name;
  }

  async send(method: string, path: string, body?: string | object): Promise<{ status: number; body: unknown }> {
    const response = await fetch(`${this.#url}${path}`, {
      method,
      headers: { "x-tenant": this.#name },
      ...(body !== undefined && { body: typeof body === "string" ? body : JSON.stringify(body) }),
    });
    return { status: response.status, body: await response.json() };
  }

  ask(chat: string, text: string, key?: string) {
    return this.send("POST", `/chats/${chat}/messages`, { text, key });
  }

  /** Asks and waits for the end: how the turn ended, and all that was shown of its answer. */
  async answerTo(chat: string, text: string): Promise<{ outcome: unknown; shown: string }> {
    await using stream = await this.watch(chat);
    const asked = this.ask(chat, text);
    const events = await stream.until("begun");
    const { turn } = (await asked).body as { turn: string };
    events.push(...(await stream.until("ended")));
    const own = events.filter(({ data }) => data.turn === turn);
    const shown = own.map(({ event, data }) => (event === "text" ? data.text : "")).join("");
    return { outcome: own.at(-1)?.data.outcome, shown };
  }

  async page(chat: string): Promise<Page> {
    const { messages, running } = (await this.send("GET", `/chats/${chat}`)).body as Page;
    return {
      messages: messages.map(({ role, text, interrupted }) => ({ role, text, ...(interrupted && { interrupted }) })),
      running,
    };
  }

  async approvals(): Promise<{ key: string; chat: string; tool: string; args: unknown; reason: string }[]> {
    const { body } = await this.send("GET", "/approvals");
    return (
      body as { approvals: (Awaited<ReturnType<Tenant["approvals"]>>[number] & { since: number })[] }
    ).approvals.map(({ since: _since, ...approval }) => approval);
  }

  /** The one call of a chat that waits for a yes. */
  async waiting(chat: string): Promise<string> {
    let key: string | undefined;
    await until(`a call of ${chat} waits`, async () => {
      key = (await this.approvals()).find((approval) => approval.chat === chat)?.key;
      return key;
    });
    return key as string;
  }

  async idle(chat: string): Promise<Page> {
    let page = await this.page(chat);
    await until(`${chat} is idle`, async () => {
      page = await this.page(chat);
      return page.running === null;
    });
    return page;
  }

  async watch(chat: string, lastEventId?: string): Promise<Stream> {
    const left = new AbortController();
    const headers = { "x-tenant": this.#name, ...(lastEventId !== undefined && { "last-event-id": lastEventId }) };
    const response = await fetch(`${this.#url}/chats/${chat}/events`, { headers, signal: left.signal });
    return new Stream(response, left);
  }
}

interface Told {
  readonly id: string;
  readonly event: string;
  readonly data: Readonly<Record<string, unknown>>;
}

/** A stream of events, as a page reads it. */
class Stream {
  readonly type: string | null;
  readonly #left: AbortController;
  readonly #events: AsyncGenerator<Told>;

  constructor(response: Response, left: AbortController) {
    this.type = response.headers.get("content-type");
    this.#left = left;
    this.#events = read(response);
  }

  /** What comes up to an event, it included; to the end of the stream when there is none. */
  async until(event: string): Promise<Told[]> {
    const told: Told[] = [];
    for (;;) {
      const next = await this.#events.next();
      if (next.done) return told;
      told.push(next.value);
      if (next.value.event === event) return told;
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#left.abort();
  }
}

async function* read(response: Response): AsyncGenerator<Told> {
  let text = "";
  const decoder = new TextDecoder();
  for await (const bytes of response.body ?? []) {
    text += decoder.decode(bytes, { stream: true });
    for (let end = text.indexOf("\n\n"); end >= 0; end = text.indexOf("\n\n")) {
      const fields = Object.fromEntries(
        text
          .slice(0, end)
          .split("\n")
          .map((line) => line.split(/: (.*)/)),
      );
      text = text.slice(end + 2);
      if (fields.event !== undefined) yield { id: fields.id, event: fields.event, data: JSON.parse(fields.data) };
    }
  }
}

const shortOf = (events: readonly Told[]) => events.map(({ event, data: { turn: _turn, ...data } }) => [event, data]);

let folder: string;
let desk: Desk;

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), "troupe-support-test-"));
  desk = await Desk.open(folder, "--pace-ms", FOR_EVER);
});

afterAll(async () => {
  await desk.end("SIGKILL");
  await rm(folder, { recursive: true, force: true });
});

/** Every byte that is kept, of the store and of the plugins. */
async function kept(): Promise<string> {
  const files = (await readdir(folder, { recursive: true, withFileTypes: true })).filter((entry) => entry.isFile());
  return (await Promise.all(files.map((file) => readFile(join(file.parentPath, file.name), "latin1")))).join("\n");
}

async function audited(chat: string): Promise<unknown[]> {
  const lines = (await readFile(join(folder, "audit/audit.jsonl"), "utf8")).trimEnd().split("\n");
  return lines.map((line) => JSON.parse(line)).filter((line) => line.chat === chat);
}

async function paid(): Promise<string[]> {
  const names = (await readdir(join(folder, "paid"))).sort();
  return Promise.all(names.map((name) => readFile(join(folder, "paid", name), "utf8")));
}

describe("what is private", () => {
  test("is masked in a customer's question before anything of it is written down", async () => {
    const privacy = desk.tenant("privacy");
    const asked = "My card is 4929 1234 5678 9012, write to bob@example.com";
    expect(await privacy.answerTo("in", asked)).toEqual({
      outcome: "finished",
      shown: "You wrote: My card is [private], write to [private] – Ada",
    });
    expect(await privacy.page("in")).toEqual({
      messages: [
        { role: "user", text: "My card is [private], write to [private]" },
        { role: "assistant", text: "You wrote: My card is [private], write to [private] – Ada" },
      ],
      running: null,
    });
    const bytes = await kept();
    expect(bytes).toContain("My card is [private], write to");
    for (const secret of ["4929", "bob@example.com"]) expect(bytes).not.toContain(secret);
  });

  test("is masked in an answer that comes in pieces of seven letters and ends in the middle of a card's number", async () => {
    const privacy = desk.tenant("privacy");
    const text = "One moment, please.Order 12 is on its way. It was paid with card [private]";
    expect(await privacy.answerTo("out", "Where is order 12?")).toEqual({ outcome: "finished", shown: text });
    expect((await privacy.page("out")).messages.at(-1)).toEqual({
      role: "assistant",
      text: "Order 12 is on its way. It was paid with card [private]",
    });
  });
});

test("what was done is in the audit file, line by line, and nothing of what was said", async () => {
  await desk.tenant("audited").answerTo("a", "Where is order 12?");
  await desk.tenant("audited").answerTo("a", "Thank you.");
  expect(await audited("audited/a")).toEqual([
    { chat: "audited/a", turn: "t1", tool: "order", status: "success" },
    { chat: "audited/a", turn: "t1", ended: "finished" },
    { chat: "audited/a", turn: "t2", ended: "finished" },
  ]);
});

test("a tenant's questions are counted over all its chats, and no other tenant's", async () => {
  const small = desk.tenant("small");
  const outcomes: unknown[] = [];
  for (const chat of ["a", "b", "c", "d"]) outcomes.push((await small.answerTo(chat, "Hello")).outcome);
  expect(outcomes).toEqual(["finished", "finished", "finished", "tenant_limit"]);
  expect((await desk.tenant("large").answerTo("a", "Hello")).outcome).toBe("finished");
  expect((await small.send("DELETE", "/limit")).body).toEqual({ lifted: true });
  expect((await small.answerTo("d", "Hello")).outcome).toBe("finished");
});

describe("a refund", () => {
  test("of a small amount is paid at once", async () => {
    const before = await paid();
    expect((await desk.tenant("refunds").answerTo("small", "Please refund 20 for order 3")).shown).toBe(
      "One moment, please.20 paid back for order 3.",
    );
    expect((await paid()).length).toBe(before.length + 1);
    expect(await paid()).toContain("3 20\n");
  });

  test("of a large amount waits for somebody's yes: the first of two who say it counts, and it is paid once", async () => {
    const [refunds, stranger] = [desk.tenant("refunds"), desk.tenant("stranger")];
    await using stream = await refunds.watch("large");
    await refunds.ask("large", "Please refund 300 for order 9");
    expect(shortOf(await stream.until("waiting"))).toEqual([
      ["begun", {}],
      ["text", { text: "One moment, " }],
      ["text", { text: "please." }],
      ["waiting", { for: "refund" }],
    ]);
    const key = await refunds.waiting("large");
    expect(await refunds.approvals()).toEqual([
      { key, chat: "large", tool: "refund", args: { order: "9", amount: 300 }, reason: "Pay 300 back for order 9?" },
    ]);
    expect(await refunds.page("large")).toEqual({
      messages: [],
      running: { turn: "t1", question: "Please refund 300 for order 9", text: "One moment, please.", waiting: 1 },
    });
    expect(await paid()).not.toContain("9 300\n");

    expect(await stranger.approvals()).toEqual([]);
    expect(await stranger.send("POST", `/approvals/${key}`, { chat: "large", approve: true })).toMatchObject({
      status: 404,
      body: { code: "completion_unknown" },
    });

    const yes = () => refunds.send("POST", `/approvals/${key}`, { chat: "large", approve: true });
    const outcomes = (await Promise.all([yes(), yes()])).map(({ body }) => (body as { outcome: string }).outcome);
    expect(outcomes.filter((outcome) => outcome === "counted")).toEqual(["counted"]);
    expect(outcomes.filter((outcome) => outcome !== "counted")).toEqual([
      expect.stringMatching(/^already_answered$|^moved_on$/),
    ]);
    expect(shortOf(await stream.until("ended")).at(-1)).toEqual(["ended", { outcome: "finished" }]);
    expect((await refunds.page("large")).messages.at(-1)?.text).toBe("300 paid back for order 9.");
    expect((await paid()).filter((refund) => refund === "9 300\n")).toEqual(["9 300\n"]);
    expect(await refunds.approvals()).toEqual([]);
  });

  test("that is refused is not paid, and the model reads why", async () => {
    const refusals = desk.tenant("refusals");
    await refusals.ask("no", "Please refund 4000 for order 5");
    const key = await refusals.waiting("no");
    const no = { chat: "no", approve: false, reason: "Refunds end at 1000." };
    expect((await refusals.send("POST", `/approvals/${key}`, no)).body).toEqual({ outcome: "counted" });
    expect((await refusals.idle("no")).messages.at(-1)?.text).toBe(
      "[Tool execution failed]\napproval_denied: The call of refund was not approved: Refunds end at 1000.",
    );
    expect(await paid()).not.toContain("5 4000\n");
    expect(await audited("refusals/no")).toEqual([{ chat: "refusals/no", turn: "t1", ended: "finished" }]);
  });
});

describe("in the middle of an answer", () => {
  test("a page that is opened or reloaded shows the question and the answer so far, and goes on where it left off", async () => {
    const reader = desk.tenant("reader");
    await using first = await reader.watch("long");
    expect(first.type).toBe("text/event-stream");
    await reader.ask("long", "How long is the warranty?");
    const seen = await first.until("text");
    const soFar = [
      ["begun", {}],
      ["text", { text: "The warranty " }],
    ];
    expect(shortOf(seen)).toEqual(soFar);
    expect(await reader.page("long")).toEqual({
      messages: [],
      running: { turn: "t1", question: "How long is the warranty?", text: "The warranty ", waiting: 0 },
    });
    await using reloaded = await reader.watch("long");
    expect(shortOf(await reloaded.until("text"))).toEqual(soFar);
    await using back = await reader.watch("long", seen.at(-1)?.id);

    expect((await reader.send("POST", "/chats/long/stop")).body).toEqual({ stopped: "cancelled" });
    const end = [["ended", { outcome: "cancelled" }]];
    for (const stream of [first, reloaded, back]) expect(shortOf(await stream.until("ended"))).toEqual(end);
  });

  test("the stop button ends it, and what was shown is kept and marked", async () => {
    const impatient = desk.tenant("impatient");
    await using stream = await impatient.watch("stop");
    await impatient.ask("stop", "How long is the warranty?");
    await stream.until("text");
    expect((await impatient.send("POST", "/chats/stop/stop")).body).toEqual({ stopped: "cancelled" });
    expect(await impatient.idle("stop")).toEqual({
      messages: [
        { role: "user", text: "How long is the warranty?" },
        { role: "assistant", text: "The warranty ", interrupted: true },
      ],
      running: null,
    });
    expect((await impatient.send("POST", "/chats/stop/stop")).body).toEqual({ stopped: "idle" });
    expect((await impatient.answerTo("stop", "Thank you.")).shown).toBe("You wrote: Thank you. – Ada");
  });
});

describe("what cannot be done is refused with a status and a code:", () => {
  const refusals: readonly (readonly [string, string, string, string | object | undefined, number, string])[] = [
    ["a path of nothing", "GET", "/nothing", undefined, 404, "not_found"],
    ["a method a path does not have", "PUT", "/chats", undefined, 404, "not_found"],
    ["a chat with a name that is none", "GET", "/chats/A_B", undefined, 400, "no_chat"],
    ["a body that is no JSON", "POST", "/chats/a/messages", "{", 400, "no_json"],
    ["a body of another shape", "POST", "/chats/a/messages", "[]", 400, "no_json"],
    ["a text that is none", "POST", "/chats/a/messages", { text: 7 }, 400, "no_text"],
    ["no text", "POST", "/chats/a/messages", {}, 400, "no_text"],
    ["a body that is too large", "POST", "/chats/a/messages", { text: "a".repeat(70_000) }, 413, "too_large"],
    ["a key of no call", "POST", "/approvals/wait_none", { chat: "a", approve: true }, 404, "completion_unknown"],
    ["a verdict that is none", "POST", "/approvals/wait_none", { chat: "a" }, 400, "no_verdict"],
  ];
  test.each(refusals)("%s", async (_what, method, path, body, status, code) => {
    expect(await desk.tenant("wrong").send(method, path, body)).toMatchObject({ status, body: { code } });
  });

  test("a request of nobody", async () => {
    expect(await desk.tenant("").send("GET", "/chats")).toMatchObject({ status: 401, body: { code: "no_tenant" } });
  });

  // The program replaces what is asked, so that nothing but memory knows what it was: not in a suite that parks all.
  test.skipIf(NODE_ARGS.length > 0)("another question under the key of an earlier one", async () => {
    const keyed = desk.tenant("keyed");
    const first = await keyed.ask("a", "Hello", "k");
    await keyed.idle("a");
    expect(await keyed.ask("a", "Hello", "k")).toEqual(first);
    expect((await keyed.page("a")).messages.length).toBe(2);
    expect(await keyed.ask("a", "Good bye", "k")).toMatchObject({ status: 409, body: { code: "turn_key_conflict" } });
  });
});

describe("killed with SIGKILL in the middle, and started again with other instructions,", () => {
  test("the program loses nothing, goes on with what was asked, and asks nobody twice", async () => {
    const before = desk.tenant("survivor");
    await using stream = await before.watch("long");
    const asked = await before.ask("long", "How long is the warranty?", "k");
    await stream.until("text");
    await before.ask("refund", "Please refund 700 for order 8");
    const key = await before.waiting("refund");
    expect(await desk.end("SIGKILL")).toEqual([null, "SIGKILL"]);

    desk = await Desk.open(folder, "--pace-ms", "0", "--instructions", "You are Bob. You help customers.");
    const after = desk.tenant("survivor");
    const refund = {
      key,
      chat: "refund",
      tool: "refund",
      args: { order: "8", amount: 700 },
      reason: "Pay 700 back for order 8?",
    };
    expect(await after.approvals()).toEqual([refund]);
    expect((await after.page("refund")).running).toEqual({
      turn: "t1",
      question: "Please refund 700 for order 8",
      text: "One moment, please.",
      waiting: 1,
    });

    // The answer is asked for again, with the instructions the turn began with; asking again by its key changes nothing.
    const answered = [
      { role: "user", text: "How long is the warranty?" },
      { role: "assistant", text: "The warranty lasts two years from the day it came. – Ada" },
    ];
    expect(await after.idle("long")).toEqual({ messages: answered, running: null });
    expect(await after.ask("long", "How long is the warranty?", "k")).toEqual(asked);
    expect((await after.page("long")).messages).toEqual(answered);

    const yes = { chat: "refund", approve: true };
    expect((await after.send("POST", `/approvals/${key}`, yes)).body).toEqual({ outcome: "counted" });
    expect((await after.idle("refund")).messages.at(-1)?.text).toBe("700 paid back for order 8.");
    expect((await paid()).filter((line) => line === "8 700\n")).toEqual(["8 700\n"]);

    // Two of three questions were asked before; the next turn has the new instructions.
    expect(await after.answerTo("long", "Who are you?")).toEqual({
      outcome: "finished",
      shown: "You wrote: Who are you? – Bob",
    });
    expect((await after.answerTo("long", "And you?")).outcome).toBe("tenant_limit");
    expect((await after.send("GET", "/chats")).body).toEqual({
      chats: expect.arrayContaining([
        { chat: "long", state: "idle", turns: 3 },
        { chat: "refund", state: "idle", turns: 1 },
      ]),
    });
    const lines = await audited("survivor/refund");
    expect(lines).toEqual([
      { chat: "survivor/refund", turn: "t1", tool: "refund", status: "success" },
      { chat: "survivor/refund", turn: "t1", ended: "finished" },
    ]);
  });

  test("SIGTERM ends it with exit code 0 and lets go of the pages that watch", async () => {
    await using stream = await desk.tenant("last").watch("a");
    expect(await desk.end("SIGTERM")).toEqual([0, null]);
    expect(await stream.until("ended")).toEqual([]);
  });
});

describe("docs/support.md", async () => {
  const root = fileURLToPath(new URL("../..", import.meta.url));
  const guide = await readFile(join(root, "docs/support.md"), "utf8");
  const blocks = [...guide.matchAll(/```ts\n\/\/ (\S+)\n([\s\S]*?)```/g)];

  test.each(blocks.map(([, file, code]) => [file as string, code as string]))(
    "shows a piece of %s as it stands there",
    async (file, code) => {
      expect(await readFile(join(root, file), "utf8")).toContain(code);
    },
  );

  test("shows five pieces", () => {
    expect(blocks).toHaveLength(5);
  });
});
