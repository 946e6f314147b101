import { systemClock } from "../../src/async/index.js";
import { loadPlugin } from "../../src/plugin/index.js";
import { Surfaces } from "../../src/session/plugins/hook-table.js";
import { InlineLink } from "../../src/session/plugins/inline-link.js";
import { PluginSlot } from "../../src/session/plugins/plugin-link.js";
import { SessionHooks } from "../../src/session/plugins/session-hooks.js";
import { SessionCatalog } from "../../src/session/protocol/catalog.js";
import { SessionProtocol } from "../../src/session/protocol/session-protocol.js";
import { standardProtocol } from "../../src/session/protocol/standard-protocol.js";
import { pluginComponent } from "../../src/session/stored/components.js";
import { type RegisteredTool, SessionTools } from "../../src/tools/index.js";
import { PhaseProbe } from "../../src/trace/index.js";

const FACTS = { sessionId: "s", turnId: "turn-1", turnIndex: 1 };
const NEVER = new AbortController().signal;

/** The parts of a session that need no thread and no store: real plugins inline, real tools, the standard protocol unless another is given. */
export async function inlineSession(
  plugins: readonly object[],
  {
    tools = [],
    captured = [],
    protocol = standardProtocol,
  }: {
    tools?: readonly RegisteredTool[];
    captured?: readonly (Uint8Array | undefined)[];
    protocol?: object;
  } = {},
) {
  const loaded = await Promise.all([...plugins, protocol].map((each) => loadPlugin(each, undefined, "test")));
  const options = {
    clock: systemClock,
    deadlineMs: 1_000,
    probe: new PhaseProbe(),
    host: () => Promise.reject(new Error("Nobody asks for host services here.")),
    development: false,
    optionalInChildren: false,
  };
  const links = loaded.map((plugin) => new InlineLink({ plugin, ...options }));
  const slots = links.map(
    ({ manifest }, number) =>
      new PluginSlot("s", { number, component: pluginComponent(manifest.id), captured: captured[number] }),
  );
  const surfaces = new Surfaces(links, tools, { dispatch: "sequential" });
  const registered = links.map((link, index) =>
    link.manifest.registers ? link.register(slots[index] as (typeof slots)[number]) : link.manifest.contributions,
  );
  const surface = surfaces.of(await Promise.all(registered));
  const session = {
    tools: new SessionTools(surface.registry),
    hooks: new SessionHooks(surface.table, slots),
    authority: {},
    protocol: new SessionProtocol(links, slots, { sessionId: "s", turnOptions: undefined }),
    surface,
    services: { surfaces },
  };
  const catalog = new SessionCatalog(session);
  return {
    ...session,
    catalog,
    resolve: (turnOptions?: Parameters<SessionCatalog["resolve"]>[1]) => catalog.resolve(FACTS, turnOptions, NEVER),
    /** As a turn begins. */
    begin: (input: string) =>
      session.hooks.directives("before_turn", { ...FACTS, input, messageCount: 0, pluginInput: null }),
  };
}
