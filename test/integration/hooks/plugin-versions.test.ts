import { createTroupe } from "troupe";
import { describe, expect, test } from "vitest";
import { firstToolValue, fixture, oneToolCall, refusalOf, startTroupe, tempFolder } from "../../support/runtime.js";

describe.each(["worker", "inline"] as const)("stored plugin state in the tier %s", (tier) => {
  const options = (path: string, query: string) => ({
    sessionWorkers: 1,
    store: { path },
    plugins: [{ module: fixture(`plugins/versioned.mjs?${query}`), tier }],
    model: oneToolCall("show"),
  });

  async function storedBy(query: string): Promise<string> {
    const path = await tempFolder();
    const troupe = await createTroupe(options(path, query));
    await (await troupe.session("s")).turn("one");
    await troupe.close();
    return path;
  }

  test("of the same major version is taken as it is", async () => {
    const troupe = await startTroupe(options(await storedBy("version=1.0.0"), "version=1.4.0"));
    expect(firstToolValue(await (await troupe.session("s")).turn("two"))).toEqual({ writtenBy: "1.0.0", turns: 2 });
  });

  test("of another version goes through the plugin's migrate, once", async () => {
    const path = await storedBy("version=1.0.0");
    const query = "version=2.0.0&migrate=1";
    const migrated = { writtenBy: "1.0.0", migratedFrom: "1.0.0" };
    const second = await createTroupe(options(path, query));
    expect(firstToolValue(await (await second.session("s")).turn("two"))).toEqual({ ...migrated, turns: 2 });
    await second.close();
    const third = await startTroupe(options(path, query));
    expect(firstToolValue(await (await third.session("s")).turn("three"))).toEqual({ ...migrated, turns: 3 });
  });

  test("of another major version without a migrate fails the open and is left as it is", async () => {
    const path = await storedBy("version=1.0.0");
    const newer = await createTroupe(options(path, "version=2.0.0"));
    const error = await refusalOf(newer.session("s"));
    expect([error.code, error.details.stored, error.details.current]).toEqual([
      "plugin_state_incompatible",
      "1.0.0",
      "2.0.0",
    ]);
    // Other sessions are not concerned.
    expect((await (await newer.session("fresh")).turn("hi")).outcome.type).toBe("finished");
    await newer.close();
    const again = await startTroupe(options(path, "version=1.0.0"));
    expect(firstToolValue(await (await again.session("s")).turn("two"))).toEqual({ writtenBy: "1.0.0", turns: 2 });
  });
});
