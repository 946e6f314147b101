import { readFileSync } from "node:fs";
import { expect, test } from "vitest";
import { TroupeError } from "../../src/kernel/index.js";
import { eventError, mapTexts } from "../../src/trace/event-error.js";
import { decodeError, encodeError } from "../../src/wire/index.js";

/** As Node throws it where the permission model denies something. */
const denied = Object.assign(new Error("Access to this API has been restricted"), {
  code: "ERR_ACCESS_DENIED",
  permission: "FileSystemWrite",
  resource: "/var/log/audit.jsonl",
});

test("what Node refused, and what it was about, is in the event's error, also behind another thread and as a cause", () => {
  const words = { code: "ERR_ACCESS_DENIED", permission: "FileSystemWrite", resource: "/var/log/audit.jsonl" };
  expect(eventError(denied)).toMatchObject(words);
  const across = decodeError(encodeError(new TroupeError("hook_failed", "It failed.", { cause: denied })));
  expect(eventError(across)).toMatchObject({ code: "hook_failed", cause: words });
});

test("the code of a system error is in the event's error", () => {
  let thrown: unknown;
  try {
    readFileSync("/nowhere/at/all");
  } catch (error) {
    thrown = error;
  }
  expect(eventError(thrown)).toMatchObject({ code: "ENOENT", message: expect.stringContaining("/nowhere/at/all") });
});

test("what is hidden in an error is hidden in what it was about and in its causes", () => {
  const error = mapTexts(eventError(new Error("outer", { cause: denied })), (text) =>
    text.replaceAll("/var/log", "[hidden]"),
  );
  expect(JSON.stringify(error)).not.toContain("/var/log");
});
