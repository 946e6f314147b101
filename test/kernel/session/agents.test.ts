import { describe, expect, it } from "vitest";
import {
  type Agent,
  bothAllow,
  checkVersions,
  checkWithin,
  chooseAgent,
  compareVersions,
  configOf,
  configuredOver,
  DEFAULT_CONFIG,
  hasPlugin,
  readAgentName,
  TroupeError,
} from "../../../src/kernel/index.js";

const codeOf = (run: () => unknown): string => {
  try {
    run();
  } catch (error) {
    return error instanceof TroupeError ? error.code : "another error";
  }
  return "nothing thrown";
};

describe("names and versions", () => {
  it("An agent's name is read as what stands before and behind the @", () => {
    expect(readAgentName("acme/support@3.1")).toEqual({ agent: "acme/support", version: "3.1" });
    expect(readAgentName("support")).toEqual({ agent: "support", version: undefined });
  });

  it.each([
    "",
    "@3",
    "support@",
    "support@latest",
    "support@1.2.3.4",
    "support@3@4",
    "sup port",
    "a".repeat(200),
    3,
    null,
  ])("A name that is none is refused with invalid_agent: %j", (name) =>
    expect(codeOf(() => readAgentName(name))).toBe("invalid_agent"),
  );

  it("Versions are ordered by their numbers part by part, and a pre-release comes before its release", () => {
    const versions = ["4", "3.10", "3.9", "3", "4-beta.2", "4-beta.10", "4-alpha", "4.0.1", "4-beta.x"];
    expect([...versions].sort(compareVersions)).toEqual([
      "3",
      "3.9",
      "3.10",
      "4-alpha",
      "4-beta.2",
      "4-beta.10",
      "4-beta.x",
      "4",
      "4.0.1",
    ]);
    expect(compareVersions("3.9", "3.10")).toBeLessThan(0);
    expect(compareVersions("4-beta.2", "4-beta.10")).toBeLessThan(0);
    expect(compareVersions("4-beta.10", "4-beta.x")).toBeLessThan(0);
    expect(compareVersions("4-beta", "4-beta.1")).toBeLessThan(0);
    expect(compareVersions("4-beta", "4")).toBeLessThan(0);
    expect(compareVersions("4", "4.0.1")).toBeLessThan(0);
    expect(compareVersions(undefined, "0")).toBeLessThan(0);
    expect(compareVersions("3", "3.0.0")).toBe(0);
  });

  it("Two spellings of one version cannot both be registered", () => {
    expect(codeOf(() => checkVersions(["support@3", "sales@3", "support@3.0"]))).toBe("invalid_agent");
    expect(codeOf(() => checkVersions(["support@3", "sales@3", "support"]))).toBe("nothing thrown");
  });
});

describe("choosing a version", () => {
  const registered = [{ name: "support@3" }, { name: "support@10" }, { name: "support" }, { name: "sales@1" }];

  it("A name without a version is the newest version of the agent", () => {
    expect(chooseAgent(registered, "support", "chat-1")?.name).toBe("support@10");
  });

  it("A name with a version is exactly that one, and nothing when it is gone", () => {
    expect(chooseAgent(registered, "support@3", "chat-1")?.name).toBe("support@3");
    expect(chooseAgent(registered, "support@4", "chat-1")).toBeUndefined();
    expect(chooseAgent(registered, "billing", "chat-1")).toBeUndefined();
  });

  const withCanary = [{ name: "support@3" }, { name: "support@4", canary: 0.1 }];
  const share = (agents: readonly { name: string; canary?: number }[], name: string) =>
    Array.from({ length: 10_000 }, (_, n) => chooseAgent(agents, "support", `chat-${n}`)?.name).filter(
      (chosen) => chosen === name,
    ).length / 10_000;

  it("A canary of 0.1 takes a tenth of the sessions, and the others have the version before", () => {
    expect(share(withCanary, "support@4")).toBeGreaterThan(0.09);
    expect(share(withCanary, "support@4")).toBeLessThan(0.11);
    expect(share(withCanary, "support@3") + share(withCanary, "support@4")).toBe(1);
  });

  it("A canary of 0 takes no session and one of 1 takes all", () => {
    expect(share([{ name: "support@3" }, { name: "support@4", canary: 0 }], "support@4")).toBe(0);
    expect(share([{ name: "support@3" }, { name: "support@4", canary: 1 }], "support@4")).toBe(1);
  });

  it("Two canaries have a share each, and the newest version without one has the rest", () => {
    const two = [{ name: "support@3" }, { name: "support@4", canary: 0.1 }, { name: "support@5", canary: 0.1 }];
    const shares = ["support@3", "support@4", "support@5"].map((name) => Math.round(share(two, name) * 50) / 50);
    expect(shares).toEqual([0.8, 0.1, 0.1]);
  });

  it("A larger canary keeps the sessions that a smaller one had", () => {
    const wider = [{ name: "support@3" }, { name: "support@4", canary: 0.5 }];
    for (let n = 0; n < 1_000; n++) {
      if (chooseAgent(withCanary, "support", `chat-${n}`)?.name !== "support@4") continue;
      expect(chooseAgent(wider, "support", `chat-${n}`)?.name).toBe("support@4");
    }
  });

  it("The sessions in the canary of one agent are not those in the canary of every other", () => {
    const both = [...withCanary, { name: "sales@1" }, { name: "sales@2", canary: 0.1 }];
    const inBoth = Array.from({ length: 10_000 }, (_, n) => `chat-${n}`).filter(
      (id) =>
        chooseAgent(both, "support", id)?.name === "support@4" && chooseAgent(both, "sales", id)?.name === "sales@2",
    );
    expect(inBoth.length).toBeGreaterThan(50);
    expect(inBoth.length).toBeLessThan(200);
  });

  it("An agent of which every version is a canary gives the rest to the newest", () => {
    const agents = [{ name: "support@4", canary: 0.1 }];
    expect(share(agents, "support@4")).toBe(1);
  });
});

describe("what an agent says over the runtime", () => {
  const agent: Agent = { name: "support@3", config: { instructions: "Be brief.", maxSteps: 4 } };

  it("An agent's instructions and limits stand in the place of the runtime's, and the rest stays", () => {
    expect(configOf({ ...DEFAULT_CONFIG, noProgressLimit: 5 }, agent)).toEqual({
      ...DEFAULT_CONFIG,
      instructions: "Be brief.",
      maxSteps: 4,
      noProgressLimit: 5,
    });
    expect(configOf(DEFAULT_CONFIG, undefined)).toBe(DEFAULT_CONFIG);
  });

  it("Only the settings that somebody changed are kept with a session of an agent", () => {
    const base = configOf(DEFAULT_CONFIG, agent);
    expect(configuredOver(base, { ...base, maxSteps: 9, metadata: { topic: "billing" } })).toEqual({
      maxSteps: 9,
      metadata: { topic: "billing" },
    });
    expect(configuredOver(base, { ...base })).toEqual({});
  });
});

describe("what a session made by another one may have", () => {
  const all = ["acme.audit", "acme.notes"];
  const within = (agent: Partial<Agent>, bounds: Parameters<typeof checkWithin>[1], mayDrop = false) =>
    codeOf(() => checkWithin({ name: "child@1", config: {}, ...agent }, bounds, { all, mayDrop: () => mayDrop }));

  it("An agent with a tool or a plugin that the maker has not is refused with authority_widened", () => {
    expect(within({ tools: ["shell"] }, { tools: ["weather"] })).toBe("authority_widened");
    expect(within({ tools: ["weather"] }, { tools: ["weather", "shell"] })).toBe("nothing thrown");
    expect(within({ plugins: all }, { plugins: ["acme.audit"] })).toBe("authority_widened");
  });

  it("An agent without a plugin that the host did not make optional is refused with plugin_not_droppable", () => {
    expect(within({ plugins: ["acme.notes"] }, {})).toBe("plugin_not_droppable");
    expect(within({ plugins: ["acme.notes"] }, {}, true)).toBe("nothing thrown");
  });

  it("An agent that names no tools and plugins has what its session may have", () => {
    expect(within({}, { tools: ["weather"], plugins: ["acme.audit"] })).toBe("nothing thrown");
    expect(bothAllow(undefined, ["weather"])).toEqual(["weather"]);
    expect(bothAllow(["weather", "shell"], ["shell", "mail"])).toEqual(["shell"]);
    expect(bothAllow(undefined, undefined)).toBeUndefined();
  });

  it("A root has its own list of plugins before its agent's, and without both it has all", () => {
    const root = (plugins: readonly string[] | undefined, agent?: Pick<Agent, "plugins">) =>
      all.filter((id) => hasPlugin({ plugins, agent, bound: false }, id, false));
    expect(root(undefined)).toEqual(all);
    expect(root(undefined, { plugins: ["acme.notes"] })).toEqual(["acme.notes"]);
    expect(root(["acme.audit"], { plugins: ["acme.notes"] })).toEqual(["acme.audit"]);
    expect(root([])).toEqual([]);
  });

  it("A session made by another one keeps what watches its maker, whatever its agent's list says", () => {
    const child = (plugins: readonly string[] | undefined, mayDrop: boolean) =>
      all.filter((id) => hasPlugin({ plugins, agent: { plugins: ["acme.notes"] }, bound: true }, id, mayDrop));
    expect(child(undefined, false)).toEqual(all);
    expect(child(undefined, true)).toEqual(["acme.notes"]);
    expect(child(["acme.audit"], false)).toEqual(["acme.audit"]);
  });
});
