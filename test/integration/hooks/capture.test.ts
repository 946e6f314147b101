import { createTroupe } from "troupe";
import { describe, expect, test } from "vitest";
import { openLmdbReader } from "../../../dist/src/store/index.js";
import { decode } from "../../../dist/src/wire/index.js";
import {
  firstToolValue,
  oneToolCall,
  plugin,
  refusalOf,
  startTroupe,
  tempFolder,
  until,
} from "../../support/runtime.js";

describe("capturing plugin state", () => {
  // §15.60
  test.each(["worker", "inline"] as const)(
    "a plugin whose state cannot be saved costs the others nothing (%s)",
    async (tier) => {
      const path = await tempFolder();
      const options = {
        sessionWorkers: 1,
        store: { path },
        plugins: [
          { module: plugin("unsavable"), tier },
          { module: plugin("counter"), tier },
        ],
        model: oneToolCall("count"),
      };
      const troupe = await createTroupe(options);
      const session = await troupe.session("s");
      const result = await session.turn("one");
      expect(result.issues.map(({ code }) => code)).toEqual(["plugin_capture_failed"]);
      expect((await refusalOf(session.close())).code).toBe("unserialisable");
      await troupe.close();
      const again = await startTroupe(options);
      expect(firstToolValue(await (await again.session("s")).turn("two"))).toBe(2);
    },
  );

  test("a turn whose plugin could not be captured has the same issues when it is asked again, also in another process", async () => {
    const options = {
      sessionWorkers: 1,
      store: { path: await tempFolder() },
      plugins: [{ module: plugin("unsavable") }],
    };
    const troupe = await createTroupe(options);
    const session = await troupe.session("s");
    const first = await session.turn("one", { key: "k" });
    expect(first.issues).toMatchObject([{ kind: "plugin", code: "plugin_capture_failed" }]);
    expect(await session.turn("one", { key: "k" })).toEqual(first);
    await troupe.close();
    const again = await startTroupe(options);
    expect(await (await again.session("s")).turn("one", { key: "k" })).toEqual(first);
  });

  // §15.60
  test("a capture whose answer came too late is made good by the next one", async () => {
    const path = await tempFolder();
    const troupe = await createTroupe({
      sessionWorkers: 1,
      store: { path },
      plugins: [{ module: plugin("slow-capture"), deadlineMs: 800, blockedMs: 60_000 }],
    });
    const session = await troupe.session("s");
    const first = await session.turn("one");
    expect(first.issues.map(({ code }) => code)).toEqual(["plugin_capture_failed"]);
    // The thread is still blocked for a moment. Another session asks until it answers: a turn of this one that is refused
    // would have the plugin's state made anew, and with it the capture.
    const other = await troupe.session("other");
    await until("the plugin answers again", () =>
      other.turn("hello?").then(
        () => true,
        () => false,
      ),
    );
    expect((await session.turn("two")).issues).toEqual([]);
    await troupe.close();
    const reader = openLmdbReader(path);
    const hash = reader.head("s")?.components["plugin:test.slow-capture"];
    expect(decode(reader.component(hash as string) as Uint8Array)).toEqual({ version: "1.0.0", state: { turns: 1 } });
    reader.close();
  });
});
