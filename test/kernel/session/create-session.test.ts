import { describe, expect, it } from "vitest";
import { checkCreateRequest, type SessionCreateRequest } from "../../../src/kernel/index.js";

const refusal = (why: string) =>
  expect.objectContaining({
    code: "invalid_session_request",
    message: `The session cannot be created: ${/[.?]$/.test(why) ? why : `${why}.`}`,
  });

describe("checkCreateRequest", () => {
  it("takes an empty request, and one with everything", () => {
    const whole: Required<SessionCreateRequest> = {
      sessionId: "child",
      relation: "child",
      start: { kind: "existing_session", sessionId: "other" },
      agent: "support@3",
      config: { maxSteps: 2 },
      pluginSource: "fresh",
      initialNodes: [{ kind: "message", message: { role: "user", text: "x" } }],
      firstTurnInput: "go",
      authority: {
        tools: [{ name: "echo", description: "d", inputSchema: { type: "object" } }],
        hiddenTools: ["shell"],
        subagent: { capability: "review", depth: 1, maxDepth: 2 },
        pluginOptions: { "acme.code": { format: "markdown" } },
        withoutPlugins: ["acme.audit"],
      },
      catalog: { remove: ["shell"] },
      usageSource: "review",
    };
    expect(checkCreateRequest(whole)).toBe(whole);
    expect(checkCreateRequest({})).toEqual({});
  });

  it("reads a field that is undefined as one that is not given", () => {
    expect(checkCreateRequest({ relation: undefined, authority: { hiddenTools: undefined } })).toEqual({
      relation: undefined,
      authority: { hiddenTools: undefined },
    });
  });

  it.each(["child", "root"])("takes the relation %s", (relation) => {
    expect(checkCreateRequest({ relation })).toEqual({ relation });
  });

  it.each<[string, unknown, string]>([
    ["what is no request", "child", "it must be an object"],
    ["a list", [], "it must be an object"],
    ["a field that is misspelt", { sesionId: "s" }, 'it has no field "sesionId". Did you mean "sessionId"?'],
    [
      "a field every object has",
      JSON.parse('{"__proto__":1}'),
      'it has no field "__proto__". There are: sessionId, relation, start, config, agent, pluginSource, initialNodes, firstTurnInput, authority, catalog, usageSource.',
    ],
    ["an id that is no text", { sessionId: 7 }, "sessionId must be a text"],
    ["a relation nobody knows", { relation: "cousin" }, 'relation must be "child" or "root"'],
    [
      "a start nobody knows",
      { start: { kind: "yesterday" } },
      'start must be { kind: "empty" }, { kind: "current_session" } or { kind: "existing_session", sessionId }',
    ],
    [
      "an existing session without a name",
      { start: { kind: "existing_session" } },
      'start must be { kind: "empty" }, { kind: "current_session" } or { kind: "existing_session", sessionId }',
    ],
    ["plugins from nowhere", { pluginSource: "stolen" }, 'pluginSource must be "fresh" or "fork"'],
    ["settings that are a list", { config: [] }, "config must be an object"],
    ["nodes that are no list", { initialNodes: {} }, "initialNodes must be a list of nodes"],
    ["a first input that is no text", { firstTurnInput: { text: "go" } }, "firstTurnInput must be a text"],
    ["a catalog without removals", { catalog: {} }, "catalog must be { remove: [tool names] }"],
    ["removals that are no names", { catalog: { remove: [1] } }, "catalog must be { remove: [tool names] }"],
    ["a usage source without a name", { usageSource: "" }, "usageSource must be a name"],
    ["an authority that is none", { authority: "none" }, "authority must be an object"],
    [
      "a restriction that is misspelt",
      { authority: { hideTools: ["shell"] } },
      'authority has no field "hideTools". Did you mean "hiddenTools"?',
    ],
    [
      "hidden tools that are one name",
      { authority: { hiddenTools: "shell" } },
      "authority.hiddenTools must be a list of tool names",
    ],
    ["tools that are only names", { authority: { tools: ["echo"] } }, "authority.tools must be a list of tools"],
    [
      "plugins that are no ids",
      { authority: { withoutPlugins: [null] } },
      "authority.withoutPlugins must be a list of plugin ids",
    ],
    [
      "a subagent without a depth",
      { authority: { subagent: { capability: "review" } } },
      "authority.subagent must be { capability, depth, maxDepth }",
    ],
    [
      "options that belong to nobody",
      { authority: { pluginOptions: [] } },
      "authority.pluginOptions must be options by plugin id",
    ],
  ])("refuses %s", (_, request, why) => {
    expect(() => checkCreateRequest(request)).toThrow(refusal(why));
  });
});
