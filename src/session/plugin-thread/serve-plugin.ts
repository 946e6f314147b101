import type { MessagePort } from "node:worker_threads";
import type { Clock } from "../../async/index.js";
import { TroupeError } from "../../kernel/index.js";
import { type LoadedPlugin, loadPlugin, pluginInvalid } from "../../plugin/index.js";
import { importDefault, type Service, serve } from "../../wire/index.js";
import type { PluginWorkerService } from "./plugin-calls.js";

const BEAT_MS = 50;

/**
 * The plugin's side: one plugin module, one instance per session, a lane to every session worker that calls it. Most
 * threads of a runtime with many plugins wait for a first call, so this file has only what loading takes; the code that
 * serves calls is imported with the first lane.
 */
export function servePlugin(parentPort: MessagePort, clock: Clock): void {
  let plugin: LoadedPlugin | undefined;
  let development = false;
  let beat: Int32Array | undefined;
  let beating = false;
  /** A thread whose event loop is blocked does not count on; that is how it is found. */
  const startBeating = (counter: Int32Array) => {
    beating = true;
    clock.interval(BEAT_MS, () => Atomics.add(counter, 0, 1));
  };
  const service: PluginWorkerService = {
    async load({ module, options, ...mode }) {
      plugin = await loadPlugin(await importDefault(module, "plugin"), options, module);
      ({ development, beat } = mode);
      if (plugin.protocol !== undefined) {
        throw pluginInvalid(module, 'it has a protocol, which is part of every turn. Give it the tier "inline"');
      }
      return plugin.manifest;
    },
    async attach(lane) {
      if (plugin === undefined || beat === undefined)
        throw new TroupeError("plugin_not_loaded", "This thread has no plugin yet.");
      if (!beating) startBeating(beat);
      const { openHookLane } = await import("./hook-lane.js");
      openHookLane(plugin, lane, { development, clock });
    },
  };
  serve(parentPort, service satisfies Service);
}
