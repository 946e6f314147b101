import { describe, expect, it } from "vitest";
import { systemClock } from "../../../src/async/index.js";
import { modelError } from "../../../src/model/boundary/errors.js";

/** What the AI SDK throws for an HTTP answer, as far as anybody reads it. */
const answered = (statusCode: number, error: { message: string; code?: unknown; type?: unknown }, more: object = {}) =>
  Object.assign(new Error(error.message), {
    name: "AI_APICallError",
    statusCode,
    responseHeaders: {},
    data: { error },
    responseBody: JSON.stringify({ error }),
    ...more,
  });
const codeOf = (thrown: unknown) => modelError(thrown, { moment: "opening", clock: systemClock }).code;
const TOO_LONG = "This model's maximum context length is 8192 tokens";

// turn §8.79
describe("why a provider refused", () => {
  it("is a context overflow by its code, whatever the words", () => {
    expect(codeOf(answered(400, { message: "no", code: "context_length_exceeded" }))).toBe("context_overflow");
  });

  it("is a context overflow by its words only when it has no code of its own", () => {
    expect(codeOf(answered(400, { message: TOO_LONG, code: null, type: "invalid_request_error" }))).toBe(
      "context_overflow",
    );
    expect(codeOf(answered(400, { message: TOO_LONG, code: "invalid_value" }))).toBe("model_request_invalid");
  });

  it("is not read from a body that repeats what the user wrote", () => {
    const echo = { responseBody: JSON.stringify({ error: { message: "unknown field" }, input: TOO_LONG }) };
    expect(codeOf(answered(400, { message: "unknown field" }, echo))).toBe("model_request_invalid");
  });

  it("is read from a body when there is nothing else", () => {
    const bare = answered(400, { message: "" }, { data: undefined, responseBody: TOO_LONG });
    expect(codeOf(bare)).toBe("context_overflow");
  });

  it.each([
    [401, "model_auth_failed"],
    [403, "model_auth_failed"],
    [429, "model_rate_limited"],
    [500, "model_server_error"],
  ])("is what its status %i says, though its words speak of a context", (status, code) => {
    expect(codeOf(answered(status, { message: TOO_LONG }))).toBe(code);
  });

  it("is no overflow when the words are about a rate", () => {
    expect(codeOf(answered(400, { message: "Rate limit reached for the context window" }))).toBe(
      "model_request_invalid",
    );
  });

  it("is told by the type of an error inside a stream, where no status is", () => {
    const overloaded = { type: "overloaded_error", message: `${TOO_LONG}, and overloaded` };
    expect(modelError(overloaded, { moment: "streaming", clock: systemClock }).code).toBe("model_server_error");
    expect(
      modelError({ type: "invalid_request_error", message: TOO_LONG }, { moment: "streaming", clock: systemClock })
        .code,
    ).toBe("context_overflow");
  });
});
