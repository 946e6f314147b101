import { existsSync } from "node:fs";
import { rm } from "node:fs/promises";
import { join } from "node:path";
import { expect, test } from "vitest";
import { refusalOf, startTroupe, tempFolder } from "../../support/runtime.js";

test("a turn of a store whose folder was removed is not acknowledged, and says so", async () => {
  const path = join(await tempFolder(), "store");
  const troupe = await startTroupe({ store: { path } });
  const session = await troupe.session("s");
  await session.turn("one");
  await rm(path, { recursive: true });
  const { code, message } = await refusalOf(session.turn("two"));
  expect(code).toBe("store_write_failed");
  expect(message).toContain("data.mdb was removed while the store was open");
  expect((await refusalOf(session.turn("three"))).code).toBe("store_write_failed");
  await troupe.close();
  expect(existsSync(path)).toBe(false);
});
