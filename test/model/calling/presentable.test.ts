import fc from "fast-check";
import { describe, expect, it, onTestFinished, vi } from "vitest";
import { TroupeError } from "../../../src/kernel/index.js";
import { presentable, presentableError } from "../../../src/model/calling/presentable.js";
import { encodeError } from "../../../src/wire/index.js";

// Looks like a key, and opens nothing.
const KEY = "sk-ant-api03-AbCdEf0123456789";

describe("a provider's words", () => {
  it.each([
    ["a key that can be told by its look", `Incorrect API key provided: ${KEY}.`],
    ["a key half hidden already", "Incorrect API key provided: sk-proj-****************wxyz."],
    ["an authorization header", `authorization: Bearer ${KEY}`],
    ["an authorization header of another scheme", "Authorization: Basic dXNlcjpwYXNzd29yZA=="],
    ["headers as JSON", `{"authorization":"Bearer abcdef0123456789","x-api-key":"abcdef0123456789"}`],
    ["a header of a gateway", "x-goog-api-key: abcdef0123456789"],
    ["a bearer token in a sentence", "the bearer abcdef0123456789 has expired"],
    ["a field", `{"api_key": "abcdef0123456789", "client_secret": "abcdef0123456789"}`],
    ["a key in an address", "GET https://example.test/v1?key=abcdef0123456789&alt=sse"],
    ["a password in an address", "GET https://me:abcdef0123456789@example.test/v1"],
    ["a cookie", "set-cookie: session=abcdef0123456789"],
    ["a key of an unusual look", "Incorrect API key provided: abcdef0123456789. You can find your key in the console."],
    ["a token of an unusual look", "The access token (abcdef0123456789) has expired"],
    ["a Google key", "AIzaSyA0123456789abcdef0123456789abcdef0 is not valid"],
    ["a signed token", "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.abcdef0123456789 expired"],
  ])("are passed on without %s", (_, words) => {
    const shown = presentable(words);
    expect(shown).toContain("[hidden]");
    expect(shown).not.toMatch(/abcdef0123456789|AbCdEf0123456789|wxyz|dXNlcjpwYXNzd29yZA|AIzaSyA/);
  });

  it("are passed on without a value of the environment that is a secret by its name", () => {
    vi.stubEnv("ACME_API_KEY", "correct horse battery staple");
    onTestFinished(() => void vi.unstubAllEnvs());
    expect(presentable("Who is correct horse battery staple?")).toBe("Who is [hidden]?");
  });

  it("are passed on as they are when there is nothing to hide", () => {
    const words = `The key "tokens" must be at most 4096: max_tokens=5000, see https://example.test/docs?page=2#tokens`;
    expect(presentable(words)).toBe(words);
  });

  it("are cut in the middle when there are too many", () => {
    const shown = presentable(`begin ${"x".repeat(10_000)} end`);
    expect(shown).toHaveLength(4_000);
    expect(shown.startsWith("begin xxx")).toBe(true);
    expect(shown.endsWith("xxx end")).toBe(true);
    expect(shown).toContain("xxx [… left out …] xxx");
  });

  it("are never too many, whatever they are, and as they are up to then", () => {
    fc.assert(
      fc.property(fc.string({ maxLength: 6_000 }), (words) => {
        expect(presentable(words).length).toBeLessThanOrEqual(4_000);
      }),
    );
    const fits = "y".repeat(4_000);
    expect(presentable(fits)).toBe(fits);
  });
});

describe("an error with something to hide", () => {
  it("keeps its code and details, and hides it in its causes and their stacks too", () => {
    const root = Object.assign(new Error(`refused ${KEY}`), { name: "AI_APICallError" });
    const cause = new Error("wrapped", { cause: root });
    const error = new TroupeError("model_auth_failed", `The provider answered 401: ${KEY}`, {
      details: { status: 401 },
      cause,
    });
    const shown = presentableError(error);
    expect(shown).toMatchObject({ code: "model_auth_failed", retryable: false, details: { status: 401 } });
    expect(shown.message).toBe("The provider answered 401: [hidden]");
    expect(shown).toMatchObject({ cause: { message: "wrapped", cause: { name: "AI_APICallError" } } });
    expect(JSON.stringify(encodeError(shown))).not.toContain("AbCdEf0123456789");
  });

  it("hides it in a cause that is no error", () => {
    const error = new TroupeError("model_failed", "No.", { cause: { headers: { "x-api-key": "abcdef0123456789" } } });
    expect(JSON.stringify(encodeError(presentableError(error)))).not.toContain("abcdef0123456789");
  });

  it("is itself when there is nothing to hide", () => {
    const error = new TroupeError("model_failed", "No.", { cause: new Error("why") });
    expect(presentableError(error)).toBe(error);
  });
});
