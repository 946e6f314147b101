import { describe, expect, test } from "vitest";
import { z } from "zod";
import { PluginOptions } from "../../../src/plugin/index.js";

const { parse } = z.object({ format: z.string() });

describe("the plugin options of a session", () => {
  test("has nothing for anybody when it is empty", () => {
    expect(PluginOptions.empty.plugins).toEqual({});
    expect(new PluginOptions().decode("acme.code", parse)).toBeUndefined();
  });

  test("is made of one plugin's entry", () => {
    expect(PluginOptions.typed("acme.code", { format: "raw" }).plugins).toEqual({ "acme.code": { format: "raw" } });
  });

  test("takes another entry, also in the place of one", () => {
    const one = PluginOptions.typed("acme.code", 1);
    expect(one.insertTyped("acme.other", 2).insertTyped("acme.code", 3).plugins).toEqual({
      "acme.code": 3,
      "acme.other": 2,
    });
    expect(one.plugins).toEqual({ "acme.code": 1 });
    expect(PluginOptions.empty.plugins).toEqual({});
  });

  test("gives an entry as its plugin reads it, and nothing without one", () => {
    const options = PluginOptions.typed("acme.code", { format: "raw", more: true });
    expect(options.decode("acme.code", parse)).toEqual({ format: "raw" });
    expect(options.decode("toString", parse)).toBeUndefined();
  });

  test("says whose entry cannot be read", () => {
    const options = PluginOptions.typed("acme.code", { format: 7 });
    expect(() => options.decode("acme.code", parse)).toThrow(
      expect.objectContaining({ code: "plugin_options_invalid", details: { pluginId: "acme.code" } }),
    );
  });

  test("carries along what belongs to others", () => {
    const options = new PluginOptions({ "acme.other": [1, 2] }).insertTyped("acme.code", null);
    expect(options.decode("acme.other", (value) => value)).toEqual([1, 2]);
    expect(options.decode("acme.code", (value) => value)).toBeNull();
  });
});
