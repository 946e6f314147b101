import { describe, expect, test } from "vitest";
import { type ModuleOwner, originOf } from "../../../src/session/plugin-thread/floating.js";
import { ownersOf, UncaughtErrors } from "../../../src/session/worker/uncaught.js";
import type { ErrorData } from "../../../src/wire/index.js";

const MODEL: ModuleOwner = { kind: "model", name: "small", module: "file:///app/model.js" };
const PLUGIN: ModuleOwner = { kind: "plugin", name: "acme.notes", module: "file:///app/a%20b/notes.js?id=1" };
const OWNERS = [MODEL, PLUGIN];

function madeAt(...places: readonly string[]): Error {
  const error = new Error("boom");
  error.stack = ["Error: boom", ...places.map((place) => `    at ${place}`)].join("\n");
  return error;
}

/** What the main thread is told. */
function told() {
  const notes: [string, ErrorData][] = [];
  const uncaught = new UncaughtErrors();
  uncaught.owners = OWNERS;
  const lane = { note: (topic: string, note: unknown) => void notes.push([topic, note as ErrorData]), close: () => {} };
  return { notes, uncaught, lane };
}

describe("the owner of an error nobody caught", () => {
  test.each([
    ["stands in its stack", madeAt("stream (file:///app/model.js:3:4)", "node:internal/timers:1:1"), MODEL],
    [
      "is the one nearest to where it was made",
      madeAt("file:///app/a%20b/notes.js?id=1:9:9", "x (file:///app/model.js:1:1)"),
      PLUGIN,
    ],
    [
      "is found behind an await",
      madeAt("node:internal/deps/undici/undici:1:2", "async file:///app/model.js:3:4"),
      MODEL,
    ],
    [
      "is not another module whose URL ends or begins alike",
      madeAt("f (file:///other/app/model.js:3:4)", "g (file:///app/model.js.map:1:1)"),
      undefined,
    ],
    ["is unknown without a stack", "boom", undefined],
  ])("%s", (_, error, owner) => {
    expect(originOf(error, OWNERS).owner).toBe(owner);
  });

  test("is unknown of a helper's code, whose place is told instead", () => {
    const error = madeAt("node:internal/timers:1:1", "f (file:///app/node_modules/x/y.js:3:4)");
    expect(originOf(error, OWNERS)).toEqual({ owner: undefined, at: "file:///app/node_modules/x/y.js:3:4" });
  });

  test("can be any model module and inline plugin of the worker, by name and id", () => {
    const inline = (module: string) =>
      ({
        tier: "inline",
        module,
        options: {},
        deadlineMs: 1,
        loadMs: 1,
        optionalInChildren: false,
        onFailure: {},
        optional: false,
      }) as const;
    const setup = {
      model: { kind: "scripted", script: { turns: [] } },
      models: { small: { kind: "module", url: MODEL.module } },
      agents: { agents: [], models: {} },
      plugins: [inline("file:///one.js"), inline("file:///two.js")],
    } as const;
    expect(ownersOf(setup, [{ id: "acme.one" }, { id: "acme.two" }])).toEqual([
      MODEL,
      { kind: "plugin", name: "acme.one", module: "file:///one.js" },
      { kind: "plugin", name: "acme.two", module: "file:///two.js" },
    ]);
  });
});

test("rejections before the worker has a lane are told once it has one", () => {
  const { notes, uncaught, lane } = told();
  uncaught.rejected(madeAt("file:///app/model.js:1:1"));
  expect(notes).toEqual([]);
  uncaught.connect(lane);
  expect(notes).toMatchObject([["floating", { code: "floating_rejection", details: { owner: MODEL } }]]);
});

test("of a thousand rejections of one owner the first sixteen are told, then ever fewer, and another owner's first is", () => {
  const { notes, uncaught, lane } = told();
  uncaught.connect(lane);
  for (let n = 0; n < 1_000; n++) uncaught.rejected(madeAt("file:///app/model.js:1:1"));
  uncaught.rejected(madeAt("file:///app/a%20b/notes.js?id=1:1:1"));
  const first = Array.from({ length: 16 }, (_, n) => n + 1);
  expect(notes.map(([, { details }]) => details?.count)).toEqual([...first, 32, 64, 128, 256, 512, 1]);
});

test("what was thrown is told in a limited size, also when it cannot be read", () => {
  const { notes, uncaught, lane } = told();
  uncaught.connect(lane);
  uncaught.rejected(new Error("x".repeat(1_000_000)));
  const hostile = new Error("");
  Object.defineProperty(hostile, "message", {
    get: () => {
      throw new Error("no");
    },
  });
  uncaught.rejected(hostile);
  expect(JSON.stringify(notes[0]).length).toBeLessThan(30_000);
  expect(notes[1]?.[1].message).toContain("something that cannot be read");
});

test("an exception is thrown on, so that the thread ends, behind what the main thread is told", () => {
  const { notes, uncaught, lane } = told();
  uncaught.connect(lane);
  expect(() => uncaught.thrown(madeAt("file:///app/model.js:1:1"))).toThrow(
    expect.objectContaining({ code: "uncaught_exception", details: { owner: MODEL, at: "file:///app/model.js:1:1" } }),
  );
  expect(notes).toMatchObject([["crashed", { code: "uncaught_exception" }]]);
});
