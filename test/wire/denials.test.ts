import { join } from "node:path";
import { expect, test } from "vitest";
import { checkDenials } from "../../src/wire/confine/denials.js";

// This thread has no permission model: nothing is denied to it, as on a release of Node that does not enforce one.
test("a thread that can read what it must not refuses to go on, whether the file is there or not", () => {
  for (const path of [process.cwd(), join(process.cwd(), "no-such-file")])
    expect(() => checkDenials({ of: "the plugin acme", paths: [path], network: false })).toThrow(
      expect.objectContaining({
        code: "isolation_unenforceable",
        message: expect.stringContaining(
          `The permissions of the plugin acme cannot be enforced here: its thread may read ${path}`,
        ),
      }),
    );
});

test("a thread that has the network although it must not refuses to go on", () => {
  expect(() => checkDenials({ of: "the plugin acme", paths: [], network: true })).toThrow("may use the network");
});

test("a thread of which nothing is demanded goes on", () => {
  expect(() => checkDenials({ of: "the plugin acme", paths: [], network: false })).not.toThrow();
});
