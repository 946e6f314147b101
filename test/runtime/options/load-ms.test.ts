import { expect, test } from "vitest";
import { systemClock } from "../../../src/async/index.js";
import { resolveOptions } from "../../../src/runtime/options/options.js";

const resolved = (loadMs?: number) =>
  resolveOptions({ plugins: [{ module: "file:///app/p.js", ...(loadMs !== undefined && { loadMs }) }] }, systemClock);

test("a plugin may take thirty seconds to load, or as long as its entry says", () => {
  expect(resolved().plugins[0]?.loadMs).toBe(30_000);
  expect(resolved(250).plugins[0]?.loadMs).toBe(250);
});

test.each([0, -1, Number.NaN, "soon"])("loading a plugin within %s ms is refused as an invalid option", (loadMs) => {
  expect(() => resolved(loadMs as number)).toThrow(
    expect.objectContaining({ code: "invalid_options", message: expect.stringContaining("plugins[0].loadMs") }),
  );
});
