import { expect, onTestFinished, test } from "vitest";
import { systemClock } from "../../../dist/src/async/index.js";
import { Thread } from "../../../dist/src/runtime/threads/threads.js";
import type { PluginHostService } from "../../../dist/src/session/index.js";
import { ToolPool } from "../../../dist/src/tools/index.js";
import { newStage } from "../../../dist/src/wire/index.js";
import { fixture, plugin } from "../../support/runtime.js";

// Threads without Node's permission model, as on a release that takes the flags and does not keep them.
const UNENFORCED = { execArgv: [], env: {} };
const denials = { of: "the module", paths: [import.meta.filename], network: false };

test("a plugin's thread that can read what it must not imports no plugin", async () => {
  const thread = new Thread<PluginHostService>({
    kind: "plugin",
    clock: systemClock,
    name: "A plugin's",
    ...UNENFORCED,
  });
  onTestFinished(() => thread.terminate());
  const plugins = [{ module: plugin("throws-at-load").href, options: undefined }];
  const loading = thread.caller.to.load({ plugins, development: false, externalMb: 256, stage: newStage(), denials });
  expect(await loading.catch(({ code }) => code)).toBe("isolation_unenforceable");
});

test("a thread of the pool that can read what it must not imports no tool", async () => {
  const entry = new URL("../../../dist/workers/tool.js", import.meta.url);
  const pool = new ToolPool({ entry, clock: systemClock, maxThreads: 1, rights: { ...UNENFORCED, denials } });
  onTestFinished(() => pool.close());
  const described = pool.describe(fixture("tools/thread-id.mjs").href);
  expect(await described.catch(({ code }) => code)).toBe("isolation_unenforceable");
});
