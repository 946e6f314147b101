import { once } from "node:events";
import { MessageChannel } from "node:worker_threads";
import { describe, expect, it } from "vitest";
import { hookPhase, PhaseProbe, recordMs } from "../../src/trace/index.js";

/** 10 ns, 20 ns, … 1,000 ns: small enough for a histogram to keep them exactly. */
function hundred(probe: PhaseProbe, name: string): void {
  for (let n = 1; n <= 100; n++) probe.phase(name).record(n * 10);
}

describe("PhaseProbe", () => {
  it("counts and gives percentiles in microseconds", () => {
    const probe = new PhaseProbe();
    hundred(probe, "turn");
    expect(probe.stats()).toEqual({ turn: { count: 100, p50: 0.5, p90: 0.9, p99: 0.99, max: 1 } });
  });

  it("gives one value as every percentile", () => {
    const probe = new PhaseProbe();
    probe.phase("turn").record(2_000);
    expect(probe.stats()).toEqual({ turn: { count: 1, p50: 2, p90: 2, p99: 2, max: 2 } });
  });

  it("gives zeros for a phase that never happened, and nothing for one nobody asked for", () => {
    const probe = new PhaseProbe();
    expect(probe.stats()).toEqual({});
    probe.phase("turn");
    expect(probe.stats()).toEqual({ turn: { count: 0, p50: 0, p90: 0, p99: 0, max: 0 } });
  });

  it("keeps phases apart, the same name being the same histogram, and lists them by name", () => {
    const probe = new PhaseProbe();
    probe.phase("b").record(1);
    probe.phase("a").record(1);
    expect(probe.phase("b")).toBe(probe.phase("b"));
    probe.phase("b").record(1);
    expect(Object.entries(probe.stats()).map(([name, { count }]) => [name, count])).toEqual([
      ["a", 1],
      ["b", 2],
    ]);
  });

  it("adds up what other probes counted, and leaves theirs as they were", () => {
    const [one, other, sum] = [new PhaseProbe(), new PhaseProbe(), new PhaseProbe()];
    one.phase("turn").record(1_000);
    other.phase("turn").record(3_000);
    other.phase("commit").record(5_000);
    other.phase("never");
    sum.merge(one.entries());
    sum.merge(other.entries());
    expect(sum.stats()).toEqual({
      commit: { count: 1, p50: 5, p90: 5, p99: 5, max: 5 },
      turn: { count: 2, p50: 1, p90: 3, p99: 3, max: 3 },
    });
    expect(one.stats()).toEqual({ turn: { count: 1, p50: 1, p90: 1, p99: 1, max: 1 } });
  });

  it("is merged from what came through a port", async () => {
    const probe = new PhaseProbe();
    hundred(probe, "turn");
    const { port1, port2 } = new MessageChannel();
    port1.postMessage(probe.entries());
    const [entries] = await once(port2, "message");
    port1.close();
    const sum = new PhaseProbe();
    sum.merge(entries);
    expect(sum.stats()).toEqual(probe.stats());
  });
});

describe("recordMs", () => {
  it("records a duration in nanoseconds", () => {
    const histogram = new PhaseProbe().phase("turn");
    recordMs(histogram, 0.0015);
    expect(histogram).toMatchObject({ count: 1, min: 1_500, max: 1_500 });
  });

  it("records at least one nanosecond", () => {
    const histogram = new PhaseProbe().phase("turn");
    recordMs(histogram, 0);
    recordMs(histogram, -5);
    expect(histogram).toMatchObject({ count: 2, min: 1, max: 1 });
  });
});

describe("hookPhase", () => {
  it("names the kind and the plugin", () => {
    expect(hookPhase("before_turn", "acme.budget")).toBe("plugin_hook.before_turn.acme.budget");
  });
});
