import { expect, test } from "vitest";
import {
  CHECKPOINT_HOOK_HOST,
  HOST_METHODS,
  type HostMethod,
  NO_HOST,
  TURN_EVENTS,
} from "../../../src/plugin/index.js";
import { callHost } from "../../../src/session/host-services/host-services.js";
import type { Session } from "../../../src/session/state/session.js";

/** Nothing of a session may be touched before a call is granted. */
const UNTOUCHABLE = new Proxy({} as Session, {
  get: (_, name) => {
    throw new Error(`session.${String(name)} was looked at`);
  },
});

const call = (method: string, granted: readonly (typeof HOST_METHODS)[HostMethod][]) =>
  callHost(UNTOUCHABLE, { pluginId: "p", granted, method: method as HostMethod, args: [], signal: undefined });

test("no host service is served to a call that was granted none", async () => {
  for (const method of [...Object.keys(HOST_METHODS), TURN_EVENTS]) {
    await expect(call(method, NO_HOST)).rejects.toMatchObject({
      code: "host_not_granted",
      details: { method, pluginId: "p" },
    });
  }
});

test("a call is granted the methods of its interfaces, and none of any other", async () => {
  const granted = Object.keys(HOST_METHODS).filter((method) =>
    ["createSession", "takeFirstTurnInput", "closeSession", "emitTraceEvent"].includes(method),
  );
  for (const method of Object.keys(HOST_METHODS)) {
    const refused = await call(method, CHECKPOINT_HOOK_HOST).catch(({ code }: { code?: string }) => code);
    if (granted.includes(method)) expect([method, refused]).not.toEqual([method, "host_not_granted"]);
    else expect([method, refused]).toEqual([method, "host_not_granted"]);
  }
});

test.each(["toString", "constructor", "__proto__", "hasOwnProperty", ""])(
  "%j is no host service, whatever is granted",
  async (method) => {
    const everything = [...new Set(Object.values(HOST_METHODS))];
    await expect(call(method, everything)).rejects.toMatchObject({ code: "host_not_granted" });
  },
);
