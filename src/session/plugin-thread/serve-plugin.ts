import type { MessagePort } from "node:worker_threads";
import type { Clock } from "../../async/index.js";
import { TroupeError } from "../../kernel/index.js";
import { type LoadedPlugin, loadPlugin, pluginInvalid } from "../../plugin/index.js";
import {
  checkDenials,
  Essentials,
  importDefault,
  type OwnMeasures,
  runBehindOthers,
  type Service,
  StageWriter,
  serve,
  threadIdOfSystem,
} from "../../wire/index.js";
import { FloatingRejections } from "./floating.js";
import type { PluginHostService } from "./plugin-calls.js";
import { ThreadLimits } from "./thread-limits.js";

/**
 * A plugin host's side: the plugins of one group, one instance of each per session, a lane to every session worker that
 * calls them. Most threads of a runtime with many plugins wait for a first call, so this file has only what loading takes;
 * the code that serves calls is imported with the first lane.
 */
export function servePlugins(control: MessagePort, clock: Clock, measures: OwnMeasures): void {
  let host:
    | {
        plugins: readonly LoadedPlugin[];
        development: boolean;
        stage: StageWriter;
        limits: ThreadLimits;
        essentials: Essentials;
      }
    | undefined;
  const lastWords = new Set<() => void>();
  process.on("exit", () => {
    for (const say of lastWords) say();
  });
  const floating = new FloatingRejections("Its thread");
  process.on("unhandledRejection", (reason) => floating.rejected(reason));
  const service: PluginHostService = {
    async load({ plugins, development, stage, externalMb, denials, background, describing }) {
      if (background) runBehindOthers();
      if (denials !== undefined) checkDenials(denials);
      const tid = threadIdOfSystem();
      floating.owners = plugins.map(({ module }) => ({ kind: "plugin", name: module, module }));
      const before = describing ? new Essentials() : undefined;
      const loaded: LoadedPlugin[] = [];
      for (const { module, options } of plugins) {
        const exported = await importDefault(module, "plugin");
        if (before?.areChanged) throw pluginInvalid(module, "it replaces functions of JavaScript while it is imported");
        const plugin = await loadPlugin(exported, options, module);
        if (plugin.protocol !== undefined)
          throw pluginInvalid(module, 'it has a protocol, which is part of every turn. Give it the tier "inline"');
        loaded.push(plugin);
      }
      floating.owners = plugins.map(({ module }, n) => ({
        kind: "plugin",
        name: loaded[n]?.manifest.id ?? "",
        module,
      }));
      const limits = new ThreadLimits(clock, measures, { stage, externalMb });
      // What a plugin changed while it was imported is how this thread is; it was loaded with it.
      const essentials = new Essentials();
      host = { plugins: loaded, development, stage: new StageWriter(stage), limits, essentials };
      return { manifests: loaded.map(({ manifest }) => manifest), tid };
    },
    async attach(lane) {
      if (host === undefined) throw notLoaded();
      const { openHookLane } = await import("./hook-lane.js");
      openHookLane(lane, { ...host, clock, lastWords, floating });
    },
    async attachJobs({ port }) {
      if (host === undefined) throw notLoaded();
      const [{ serveJobs }, { tooLarge }] = await Promise.all([
        import("../../tools/index.js"),
        import("./answer-size.js"),
      ]);
      serveJobs(port, { ...host, clock, refusalOf: (what) => tooLarge(what, "What a job says") });
    },
    ping() {
      host?.limits.asked();
    },
  };
  serve(control, service satisfies Service);
}

function notLoaded(): TroupeError {
  return new TroupeError("plugin_not_loaded", "This thread has no plugin yet.");
}
