import { type Session, scriptedModel } from "troupe";
import { describe, expect, test } from "vitest";
import { refusalOf, startTroupe, tempFolder } from "../../support/runtime.js";

const said = (text: string) => ({ kind: "message", message: { role: "user", text } }) as const;
const model = scriptedModel({ turns: [[{ text: "ok" }]] });

async function textsOf(session: Session): Promise<string[]> {
  return (await session.messages()).map(({ parts }) => parts.map((part) => ("text" in part ? part.text : "")).join(""));
}

// state §2.4
describe("an append under an operation id", () => {
  test("is done once, and answers the same ids however often it is asked for", async () => {
    const troupe = await startTroupe({ model });
    const session = await troupe.session("s");
    const request = { nodes: [said("one"), said("two")], operationId: "import-7" };
    const first = await session.append(request);
    await session.turn("go on");
    const { revision } = await session.info();
    expect(await session.append(request)).toEqual(first);
    expect(await textsOf(session)).toEqual(["one", "two", "go on", "ok"]);
    expect((await session.info()).revision).toBe(revision);
  });

  test("is done once when it is asked for many times at once", async () => {
    const troupe = await startTroupe({ model });
    const session = await troupe.session("s");
    const request = { nodes: [said("once")], operationId: "a" };
    const answers = await Promise.all(Array.from({ length: 20 }, () => session.append(request)));
    expect(new Set(answers.map((answer) => JSON.stringify(answer))).size).toBe(1);
    expect(await textsOf(session)).toEqual(["once"]);
  });

  test("is still done in the next process", async () => {
    const store = { path: await tempFolder() };
    const request = { nodes: [said("once")], operationId: "a" };
    const before = await startTroupe({ model, store });
    const first = await (await before.session("s")).append(request);
    await before.close();
    const session = await (await startTroupe({ model, store })).session("s");
    expect(await session.append(request)).toEqual(first);
    expect(await textsOf(session)).toEqual(["once"]);
  });

  test("is answered although its branch is no longer the session's: it was when it was done", async () => {
    const troupe = await startTroupe({ model });
    const session = await troupe.session("s");
    const { leafNodeId: base } = (await session.append({ nodes: [said("base")] })) as { leafNodeId: string };
    const request = { nodes: [said("derived")], requiresAncestorNodeId: base, operationId: "derive" };
    const first = await session.append(request);
    expect(first.status).toBe("appended");
    const fork = await session.fork({ id: "f" });
    // What was asked of the parent was not asked of the fork.
    expect(await fork.append(request)).toMatchObject({ status: "appended", nodeIds: ["f@2.0"] });
    expect(await session.append(request)).toEqual(first);
  });

  test("with other nodes is refused, and nothing is appended", async () => {
    const troupe = await startTroupe({ model });
    const session = await troupe.session("s");
    await session.append({ nodes: [said("one")], operationId: "a" });
    const refusal = await refusalOf(session.append({ nodes: [said("two")], operationId: "a" }));
    expect(refusal).toMatchObject({ code: "operation_key_conflict", details: { key: "a", name: "append" } });
    expect(await textsOf(session)).toEqual(["one"]);
  });

  test("that found its branch stale is not remembered, because nothing was done", async () => {
    const troupe = await startTroupe({ model });
    const session = await troupe.session("s");
    const { leafNodeId: leaf } = (await session.append({ nodes: [said("one")] })) as { leafNodeId: string };
    const other = await troupe.session("other");
    const { leafNodeId: elsewhere } = (await other.append({ nodes: [said("elsewhere")] })) as { leafNodeId: string };
    const request = { nodes: [said("two")], operationId: "a" };
    // state §2.4
    expect(await session.append({ ...request, requiresAncestorNodeId: elsewhere })).toEqual({
      status: "stale_branch",
      currentLeafNodeId: leaf,
      requiredNodeId: elsewhere,
    });
    expect(await session.append(request)).toMatchObject({ status: "appended", nodeIds: ["s@2.0"] });
  });

  test("whose nodes cannot be stored is not remembered, and the session goes on", async () => {
    const troupe = await startTroupe({ model });
    const session = await troupe.session("s");
    const unfit = { kind: "plugin", pluginType: "x", body: (2n ** 80n) as never } as const;
    await refusalOf(session.append({ nodes: [unfit], operationId: "a" }));
    expect(await session.append({ nodes: [said("fits")], operationId: "a" })).toMatchObject({ status: "appended" });
    expect(await textsOf(session)).toEqual(["fits"]);
  });

  test.each([
    [{ nodes: [said("x")], operationId: "" }],
    [{ nodes: [said("x")], operationId: 7 }],
    [{ nodes: [said("x")], requiresAncestorNodeId: 7 }],
    [{ nodes: "x" }],
    [undefined],
  ])("must be well formed: %j", async (request) => {
    const troupe = await startTroupe({ model });
    const session = await troupe.session("s");
    expect(await refusalOf(session.append(request as never))).toMatchObject({ code: "invalid_nodes" });
  });

  test("is remembered among the last 64", async () => {
    const troupe = await startTroupe({ model });
    const session = await troupe.session("s");
    const append = (n: number) => session.append({ nodes: [said(`${n}`)], operationId: `op-${n}` });
    for (let n = 0; n <= 64; n++) await append(n);
    await append(1);
    expect(await session.messages()).toHaveLength(65);
    await append(0);
    expect(await session.messages()).toHaveLength(66);
  });
});
