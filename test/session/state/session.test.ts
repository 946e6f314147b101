import { expect, test } from "vitest";
import { systemClock } from "../../../src/async/index.js";
import { DEFAULT_CONFIG } from "../../../src/kernel/index.js";
import { NO_AGENT } from "../../../src/session/state/agents.js";
import type { SessionServices } from "../../../src/session/state/session.js";
import { Session } from "../../../src/session/state/session.js";
import { SessionInputs } from "../../../src/session/state/session-inputs.js";
import { IDLE } from "../../../src/session/state/session-life.js";
import { Deadlines } from "../../../src/wire/index.js";
import { MemoryStore } from "../../support/memory-store.js";
import { inlineSession } from "../inline-session.js";

/** Everything a caller can reach: past this the session would be a god object again. Give new duties a part of their own. */
const MAX_MEMBERS = 25;

test("a session has at most 25 public members", async () => {
  const { surface, tools, protocol, services } = await inlineSession([]);
  const session = new Session({
    id: "s",
    chart: { life: () => IDLE, send: () => undefined },
    // All that a session looks at before it does something.
    services: {
      ...services,
      store: new MemoryStore(),
      clock: systemClock,
      deadlines: new Deadlines(systemClock),
      prices: {},
      journals: false,
    } as unknown as SessionServices,
    head: undefined,
    epoch: 1,
    identity: {},
    opening: undefined,
    equipment: {
      agent: NO_AGENT,
      surface,
      slots: [],
      tools,
      config: DEFAULT_CONFIG,
      budget: null,
      authority: {},
      protocol,
    },
    inputs: new SessionInputs(),
    pluginOptions: {},
  });
  const methods = Object.getOwnPropertyNames(Session.prototype).filter((name) => name !== "constructor");
  const members = [...Object.keys(session), ...methods];
  expect(members).toContain("stored");
  expect(members.length, members.join(", ")).toBeLessThanOrEqual(MAX_MEMBERS);
});
