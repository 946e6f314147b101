import { describe, expect, it } from "vitest";
import { PluginSlot } from "../../../src/session/plugins/plugin-link.js";
import { encode } from "../../../src/wire/index.js";

const slot = () => new PluginSlot("s", { number: 1, component: "plugin:p", version: "1.0.0" });
const good = () => encode({ version: "1.0.0", state: { count: 1 } });

describe("captured state from a plugin's thread", () => {
  it("is kept as a copy: what the sender changes later is not stored", () => {
    const shared = new Uint8Array(new SharedArrayBuffer(good().length));
    shared.set(good());
    const kept = slot();
    kept.keep({ state: shared });
    shared.fill(0);
    expect(kept.captured).toEqual(good());
    expect(kept.dirty).toBe(true);
  });

  it.each<[string, unknown]>([
    ["nothing at all", null],
    ["a text for bytes", { state: "state" }],
    ["an object that claims to be bytes", { state: { length: 4_000_000_000, byteLength: 1 } }],
    ["bytes that are no record", { state: Uint8Array.of(1, 2, 3) }],
    ["a record that ends too early", { state: good().slice(0, -1) }],
    ["a record of a number", { state: encode(7) }],
    ["a record without a version", { state: encode({ state: 1 }) }],
    [
      "a record of another version, which the session could not be opened with",
      { state: encode({ version: "9.0.0" }) },
    ],
    ["a revision that is no number", { state: encode({ version: "1.0.0", revision: "x" }) }],
    ["blobs that are none", { state: encode({ version: "1.0.0", blobs: [["name", "text"]] }) }],
  ])("that is %s is refused as plugin_capture_failed and the last good state stays", (_, forged) => {
    const kept = slot();
    kept.keep({ state: good() });
    expect(() => kept.keep(forged as never)).toThrow(expect.objectContaining({ code: "plugin_capture_failed" }));
    expect(kept.captured).toEqual(good());
  });
});
