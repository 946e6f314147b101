import { createHash } from "node:crypto";
import { join } from "node:path";
import { pendingTool, type Session, type TroupeOptions, toolContent } from "troupe";
import { describe, expect, test } from "vitest";
import { told } from "../../support/asking.js";
import { collect, EMPTY_OBJECT, fixture, PATIENT, plugin, startTroupe, tempFolder } from "../../support/runtime.js";

/** The host's is the same tool as the plugin's and the pool's. */
const { default: draws } = await import(fixture("tools/draws.mjs").href);

const HOMES = [
  ["draw", "the host"],
  ["draw_in_plugin", "a plugin"],
  ["draw_in_pool", "the pool"],
] as const;

const options = (more: TroupeOptions = {}): TroupeOptions => ({
  sessionWorkers: 1,
  plugins: [{ module: plugin("draws"), ...PATIENT }],
  tools: {
    draw: draws,
    draw_in_pool: { module: fixture("tools/draws.mjs") },
    ...Object.fromEntries(["denied", "reviewed", "shown", "worded", "forged"].map((name) => [`draw_${name}`, draws])),
    later: {
      description: "Answers later",
      inputSchema: EMPTY_OBJECT,
      execute: (_args: unknown, { completionKey }: { readonly completionKey: string }) =>
        pendingTool({ announcement: completionKey }),
    },
  },
  model: fixture("models/parts.mjs"),
  ...more,
});

/** What the model was given: the parts of the conversation, and the bytes of attachments as base64, by hash. */
interface Given {
  readonly conversation: readonly { readonly role: string; readonly parts: readonly Record<string, unknown>[] }[];
  readonly attachments: Readonly<Record<string, string>>;
}

const asked = async (session: Session, ...steps: readonly object[]): Promise<Given> =>
  JSON.parse((await session.turn(told(...steps))).text);
const resultsIn = ({ conversation }: Given) =>
  conversation.filter(({ role }) => role === "tool").flatMap(({ parts }) => parts);

const bytesOf = (length: number, fill: number) => new Uint8Array(length).fill(fill);
const hashOf = (bytes: Uint8Array) => createHash("sha256").update(bytes).digest("base64url");
const DRAWN = bytesOf(3, 7);
const STORED = { kind: "stored", hash: hashOf(DRAWN), bytes: 3 };
const IMAGE = { type: "attachment", mediaType: "image/png", name: "drawn.png", source: STORED };
const CONTENT = [{ type: "text", text: "Drawn:" }, { type: "json", value: { bytes: 3 } }, IMAGE];
const WORDS = 'Drawn:\n{"bytes":3}\n[image/png drawn.png, 3 bytes]';

describe.each(HOMES)("an image that the tool %s of %s answers with", (call) => {
  test("reaches the model with its bytes, is stored, and is there when the store is opened again", async () => {
    const path = join(await tempFolder(), "store");
    const troupe = await startTroupe(options({ store: { path } }));
    const session = await troupe.session("s");
    const given = await asked(session, { call });
    const result = { type: "tool_result", callId: expect.any(String), toolName: call, status: "success" };
    expect(resultsIn(given)).toEqual([{ ...result, text: WORDS, content: CONTENT }]);
    expect(given.attachments).toEqual({ [STORED.hash]: "BwcH" });
    await troupe.close();

    const again = await startTroupe(options({ store: { path } }));
    const later = await asked(await again.session("s"));
    expect(resultsIn(later)).toEqual(resultsIn(given));
    expect(later.attachments).toEqual(given.attachments);
  });

  test("is told to the host by its hash, with the value for those who read values", async () => {
    const troupe = await startTroupe(options());
    const turn = (await troupe.session("s")).turn(told({ call }));
    const activities = await collect(turn);
    const output = { status: "success", value: { drawn: 3 }, content: CONTENT };
    expect(activities.find(({ type }) => type === "tool_call_finished")).toMatchObject({ output });
    expect((await turn).toolCalls).toMatchObject([{ toolName: call, output }]);
  });

  test("fails its call when it is larger than the host allows, and the model reads why", async () => {
    const troupe = await startTroupe(options({ attachments: { maxBytes: 10 } }));
    const given = await asked(await troupe.session("s"), { call, args: { bytes: 11 } });
    const [result] = resultsIn(given);
    expect(result).toMatchObject({ status: "failure" });
    expect(result?.text).toContain("tool_content_invalid");
    expect(result?.text).toContain("11 bytes; 10 are allowed");
  });
});

test("a file that stands elsewhere is given to the model as its address only where the host allows the address", async () => {
  const url = "https://files.example/a.pdf";
  const refusing = await startTroupe(options());
  const [refused] = resultsIn(await asked(await refusing.session("s"), { call: "draw", args: { url } }));
  expect(refused?.text).toContain("attachments from files.example are not allowed here");
  const allowing = await startTroupe(options({ attachments: { urls: ["files.example"] } }));
  const [result] = resultsIn(await asked(await allowing.session("s"), { call: "draw", args: { url } }));
  expect(result?.content).toEqual([
    ...CONTENT,
    { type: "attachment", mediaType: "application/pdf", source: { kind: "url", url } },
  ]);
});

test("a call that is answered from outside can be answered with an image", async () => {
  const troupe = await startTroupe(options());
  const turn = (await troupe.session("s")).turn(told({ call: "later" }));
  for await (const activity of turn) {
    if (activity.type !== "tool_call_pending") continue;
    const value = toolContent([{ type: "image", mediaType: "image/png", data: DRAWN }], { value: "approved" });
    await troupe.completeTool(activity.key, { value });
  }
  const { text, toolCalls } = await turn;
  const content = [{ type: "attachment", mediaType: "image/png", source: STORED }];
  expect(toolCalls).toMatchObject([{ output: { value: "approved", content } }]);
  expect((JSON.parse(text) as Given).attachments).toEqual({ [STORED.hash]: "BwcH" });
});

test("an exported session has the images of its tools, and an import gives them to the model again", async () => {
  const troupe = await startTroupe(options({ store: { path: join(await tempFolder(), "store") } }));
  const session = await troupe.session("s");
  await asked(session, { call: "draw" });
  for (const format of ["msgpack", "json"] as const) {
    const exported = await troupe.exportSession("s", { format });
    const path = join(await tempFolder(), "store");
    const other = await startTroupe(options({ store: { path } }));
    await other.importSession(exported as Uint8Array);
    const given = await asked(await other.session("s"));
    expect([format, resultsIn(given)]).toMatchObject([format, [{ text: WORDS, content: CONTENT }]]);
    expect(given.attachments).toEqual({ [STORED.hash]: "BwcH" });
  }
});

describe("hooks see a result's parts", () => {
  const small = (fill: number) => ({
    type: "attachment",
    mediaType: "image/gif",
    source: { kind: "stored", hash: hashOf(bytesOf(2, fill)), bytes: 2 },
  });

  test("and beforeToolCall may answer with parts in the tool's stead", async () => {
    const troupe = await startTroupe(options());
    const given = await asked(await troupe.session("s"), { call: "draw_denied" });
    expect(resultsIn(given)).toMatchObject([{ content: [{ type: "text", text: "Instead:" }, small(1)] }]);
    expect(given.attachments).toEqual({ [small(1).source.hash]: "AQE=" });
  });

  test("and afterToolCall may keep them and add another", async () => {
    const troupe = await startTroupe(options());
    const given = await asked(await troupe.session("s"), { call: "draw_reviewed" });
    expect(resultsIn(given)).toMatchObject([{ content: [...CONTENT, small(2)] }]);
    expect(given.attachments).toEqual({ [STORED.hash]: "BwcH", [small(2).source.hash]: "AgI=" });
  });

  test("and a projector may show the model other parts, while the record keeps the result", async () => {
    const troupe = await startTroupe(options());
    const result = await (await troupe.session("s")).turn(told({ call: "draw_shown" }));
    const shown = [IMAGE, { type: "text", text: "shown" }];
    expect(resultsIn(JSON.parse(result.text))).toMatchObject([{ content: shown }]);
    expect(result.toolCalls).toMatchObject([{ output: { content: CONTENT }, modelContent: shown }]);
  });

  test("and a projector that knows only text goes on to work", async () => {
    const troupe = await startTroupe(options());
    const given = await asked(await troupe.session("s"), { call: "draw_worded" });
    expect(resultsIn(given)).toMatchObject([{ text: 'only words: {"drawn":3}' }]);
    expect(resultsIn(given)[0]).not.toHaveProperty("content");
  });

  test("and none can name a file that its session does not have", async () => {
    const troupe = await startTroupe(options());
    const [result] = resultsIn(await asked(await troupe.session("s"), { call: "draw_forged" }));
    expect(result?.text).toMatch(/^\[Tool result could not be shown\]\n.*a stored attachment of it is not there/s);
  });
});
