import { describe, expect, test } from "vitest";
import { TriggerCatalog, triggerSource } from "../../../src/plugin/index.js";

const opened = { resourceType: "tracker", alias: "issues", event: "opened", payloadSchema: { type: "object" } };
const closed = { ...opened, event: "closed" };
const of = (pluginId: string, trigger: typeof opened) => ({ pluginId, trigger });

describe("the triggers of all plugins", () => {
  // §15.8
  test("are found by resource type, alias and event, and go by alias and event", () => {
    const catalog = new TriggerCatalog([of("a", opened), of("b", closed)]);
    expect(catalog.find("tracker", "issues", "closed")).toEqual(closed);
    expect(catalog.find("mail", "issues", "closed")).toBeUndefined();
    expect(catalog.find("tracker", "issues", "lost")).toBeUndefined();
    expect(catalog.all.map(triggerSource)).toEqual(["issues.opened", "issues.closed"]);
  });

  // §15.7
  test.each([
    ["one key", opened],
    ["one name for two resource types", { ...opened, resourceType: "mail" }],
  ])("are refused when two have %s", (_, second) => {
    expect(() => new TriggerCatalog([of("a", opened), of("b", second)])).toThrow(
      expect.objectContaining({
        code: "duplicate_trigger",
        details: { trigger: "issues.opened", plugins: ["a", "b"] },
      }),
    );
  });
});
