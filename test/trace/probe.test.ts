import { once } from "node:events";
import { MessageChannel } from "node:worker_threads";
import { describe, expect, it } from "vitest";
import { hookPhase, PhaseProbe, recordMs } from "../../src/trace/index.js";

/** Ends of a histogram's steps, so that it keeps them exactly: its steps are 256 ns wide up to 64 µs. */
const STEP = 256e-6;
const upTo = (steps: number) => steps * STEP - 1e-6;

function hundred(probe: PhaseProbe, name: string): void {
  for (let n = 1; n <= 100; n++) recordMs(probe.phase(name), upTo(n));
}

const NO_FAILURES = { errors: 0, timeouts: 0 };

describe("PhaseProbe", () => {
  it("counts and gives percentiles in microseconds", () => {
    const probe = new PhaseProbe();
    hundred(probe, "turn");
    expect(probe.stats()).toEqual({
      turn: { count: 100, p50: 12.8, p90: 23.04, p99: 25.34, max: 25.6, ...NO_FAILURES },
    });
  });

  it("gives one value as every percentile", () => {
    const probe = new PhaseProbe();
    recordMs(probe.phase("turn"), upTo(8));
    expect(probe.stats()).toEqual({ turn: { count: 1, p50: 2.05, p90: 2.05, p99: 2.05, max: 2.05, ...NO_FAILURES } });
  });

  it("gives zeros for a phase that never happened, and nothing for one nobody asked for", () => {
    const probe = new PhaseProbe();
    expect(probe.stats()).toEqual({});
    probe.phase("turn");
    expect(probe.stats()).toEqual({ turn: { count: 0, p50: 0, p90: 0, p99: 0, max: 0, ...NO_FAILURES } });
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
    recordMs(one.phase("turn"), upTo(4));
    recordMs(other.phase("turn"), upTo(12));
    recordMs(other.phase("commit"), upTo(20));
    other.phase("never");
    sum.merge(one.entries());
    sum.merge(other.entries());
    expect(sum.stats()).toEqual({
      commit: { count: 1, p50: 5.12, p90: 5.12, p99: 5.12, max: 5.12, ...NO_FAILURES },
      turn: { count: 2, p50: 1.02, p90: 3.07, p99: 3.07, max: 3.07, ...NO_FAILURES },
    });
    expect(one.stats()).toEqual({ turn: { count: 1, p50: 1.02, p90: 1.02, p99: 1.02, max: 1.02, ...NO_FAILURES } });
  });

  it("adds up what failed and what missed its deadline, in all probes", () => {
    const [one, other, sum] = [new PhaseProbe(), new PhaseProbe(), new PhaseProbe()];
    for (const probe of [one, other]) recordMs(probe.phase("turn"), upTo(4));
    one.failed("turn", false);
    one.failed("turn", true);
    other.failed("turn", true);
    for (const probe of [one, other]) sum.merge(probe.entries(), probe.failures());
    expect(sum.stats().turn).toMatchObject({ count: 2, errors: 3, timeouts: 2 });
    expect(other.failures()).toEqual([["turn", 1, 1]]);
  });

  it("is merged from what came through a port once, which goes on counting there", async () => {
    const probe = new PhaseProbe();
    hundred(probe, "turn");
    const { port1, port2 } = new MessageChannel();
    port1.postMessage(probe.entries());
    const [entries] = await once(port2, "message");
    port1.close();
    hundred(probe, "turn");
    const sum = new PhaseProbe();
    sum.merge(entries);
    expect(sum.stats()).toEqual(probe.stats());
    expect(sum.stats().turn?.count).toBe(200);
  });

  it("lists the histograms behind those that are known", () => {
    const probe = new PhaseProbe();
    for (const name of ["a", "b", "c"]) probe.phase(name);
    expect([0, 2, 3].map((known) => probe.entries(known).map(([name]) => name))).toEqual([["a", "b", "c"], ["c"], []]);
  });
});

describe("recordMs", () => {
  it("tells durations apart from half a microsecond on", () => {
    const histogram = new PhaseProbe().phase("turn");
    recordMs(histogram, 0.0015);
    expect(histogram).toMatchObject({ count: 1, min: 1_280, max: 1_535 });
  });

  it("counts what took no time, or less", () => {
    const histogram = new PhaseProbe().phase("turn");
    recordMs(histogram, 0);
    recordMs(histogram, -5);
    expect(histogram).toMatchObject({ count: 2, max: 255 });
  });

  it("counts what took longer than a minute as a minute", () => {
    const histogram = new PhaseProbe().phase("turn");
    recordMs(histogram, 3_600_000);
    expect(histogram).toMatchObject({ count: 1, exceeds: 0 });
    expect(histogram.percentile(50) / 60e9).toBeCloseTo(1, 2);
  });
});

describe("hookPhase", () => {
  it("names the kind and the plugin", () => {
    expect(hookPhase("before_turn", "acme.budget")).toBe("plugin_hook.before_turn.acme.budget");
  });
});
