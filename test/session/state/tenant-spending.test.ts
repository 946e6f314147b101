import fc from "fast-check";
import { expect, test } from "vitest";
import { systemClock } from "../../../src/async/index.js";
import { NO_USAGE, periodAt, type RowWrite } from "../../../src/kernel/index.js";
import { TenantAccounts, tenantSpendingOf } from "../../../src/session/state/tenant-spending.js";

const period = periodAt("day", Date.UTC(2026, 10, 18, 12));
const spent = (inputTokens: number) => [{ source: "turn", model: "m", usage: { ...NO_USAGE, inputTokens } }];
const signal = new AbortController().signal;

function worker(budget: "none" | "some", tenant: string | undefined = "acme") {
  const asked: string[] = [];
  const written: RowWrite[] = [];
  const relay = async (method: string) => {
    asked.push(method);
    if (method === "tenantAdmit") return budget === "none" ? { kind: "unlimited" } : { kind: "go", period };
    return method === "tenantCommits" && budget === "some" ? period : null;
  };
  const changeRows = async ({ changes }: { readonly changes: readonly RowWrite[] }) => {
    written.push(...changes);
    return { versions: [] };
  };
  const services = {
    clock: systemClock,
    prices: {},
    store: { changeRows },
    relay: relay as never,
    tenants: new TenantAccounts(),
  };
  return { asked, written, services, of: (session: string) => tenantSpendingOf(session, tenant, services) };
}

test("a tenant without a budget is asked about once for all sessions of a worker, until its budget changes", async () => {
  const { asked, written, services, of } = worker("none");
  for (const session of ["a", "b"]) {
    const spending = of(session);
    await spending?.admit([], signal);
    spending?.paid([], spent(5));
    expect(await spending?.countOf(spent(5))).toEqual([]);
    spending?.ended();
    await spending?.countRefused(spent(5));
  }
  expect([asked, written]).toEqual([["tenantAdmit"], []]);
  services.tenants.changed("acme");
  await of("a")?.admit([], signal);
  expect(asked).toEqual(["tenantAdmit", "tenantAdmit"]);
});

test("a session without a tenant, and one where tenants have no budgets, has nothing to ask", () => {
  const { services } = worker("some");
  expect(tenantSpendingOf("s", undefined, services)).toBeUndefined();
  expect(tenantSpendingOf("s", "acme", { ...services, tenants: undefined })).toBeUndefined();
});

test("a call of a tenant with a budget is one question and one word of what it cost, and its commit a question and a word", async () => {
  const { asked, of } = worker("some");
  const spending = of("s");
  await spending?.admit([], signal);
  spending?.paid([], spent(5));
  expect(await spending?.countOf(spent(5))).toEqual([
    {
      table: "tenant_spending",
      key: "day:2026-11-18:acme",
      add: [5, 0],
      order: { at: Date.UTC(2026, 10, 18), owner: "acme" },
    },
  ]);
  spending?.ended();
  expect(asked).toEqual(["tenantAdmit", "tenantPaid", "tenantCommits", "tenantEnded"]);
});

test("what a turn that was refused has spent is counted all the same", async () => {
  const { written, of } = worker("some");
  await of("s")?.countRefused(spent(7));
  expect(written).toMatchObject([{ add: [7, 0] }]);
});

test("every moment is in one period, which begins where the one before ends", () => {
  const periods = fc.oneof(
    fc.constantFrom("day" as const, "month" as const),
    fc.integer({ min: 1_000, max: 10 ** 11 }).map((ms) => ({ ms })),
  );
  fc.assert(
    fc.property(periods, fc.integer({ min: 0, max: Date.UTC(2200, 0) }), (length, at) => {
      const { name, start, end } = periodAt(length, at);
      expect(start <= at && at < end).toBe(true);
      expect(periodAt(length, start)).toEqual({ name, start, end });
      expect(periodAt(length, end)).toMatchObject({ start: end });
      expect(periodAt(length, end).name).not.toBe(name);
    }),
  );
});
