import { describe, expect, it } from "vitest";
import { checkSessionId } from "../../src/kernel/index.js";

describe("checkSessionId", () => {
  it.each(["a", "chat-42/research", "é 🙂", "a.b@3.1", " ", "x".repeat(256)])("accepts %j", (id) => {
    expect(checkSessionId(id)).toBe(id);
  });

  it.each<[unknown, string]>([
    ["", "it is empty"],
    ["x".repeat(257), "it has 257"],
    ["a\nb", "it contains a control character"],
    ["a\u0000", "it contains a control character"],
    ["a\u007f", "it contains a control character"],
    ["a\u0085", "it contains a control character"],
    ["a\u2028", "it contains a control character"],
    ["a\ud83d", "it contains half of a surrogate pair"],
    [undefined, "got undefined"],
    [null, "got null"],
    [42, "got number"],
    [["a"], "got object"],
  ])("refuses %j", (id, why) => {
    expect(() => checkSessionId(id)).toThrow(
      expect.objectContaining({
        code: "invalid_session_id",
        message: `A session id must be 1 to 256 printable characters: ${why}.`,
      }),
    );
  });
});
