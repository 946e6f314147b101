import { describe, expectTypeOf, it } from "vitest";
import { z } from "zod";
import type {
  Activity,
  ListRequest,
  Observed,
  ObserveOptions,
  OutputResult,
  PendingInView,
  Rewound,
  Session,
  SessionPage,
  SharedEntry,
  TenantBudget,
  TenantSpendingReport,
  Troupe,
  TroupeOptions,
  TurnInProgress,
  TurnResult,
} from "../../../src/index.js";

/** These tests are read by the compiler too: a line that should not compile and does is an error of `npm run check`. */

type Running = NonNullable<Awaited<ReturnType<Session["view"]>>["running"]>;

describe("the types of seeing", () => {
  it("say what a turn that runs has shown", () => {
    expectTypeOf<Running>().toEqualTypeOf<TurnInProgress>();
    expectTypeOf<Omit<Running, "pending">>().toEqualTypeOf<{
      readonly turnId: string;
      readonly turnIndex: number;
      readonly since: number;
      readonly input: string;
      readonly step: number;
      readonly text: string;
    }>();
    expectTypeOf<Running["pending"]>().toEqualTypeOf<readonly PendingInView[]>();
    expectTypeOf<PendingInView["key"]>().toEqualTypeOf<string>();
  });

  it("say where watching may begin, and that each event has its turn and each activity its time", () => {
    expectTypeOf<Session["observe"]>().parameters.toEqualTypeOf<[options?: ObserveOptions | undefined]>();
    expectTypeOf<Session["observe"]>().returns.toEqualTypeOf<AsyncIterableIterator<Observed>>();
    expectTypeOf<Activity["at"]>().toEqualTypeOf<number>();
    (event: Observed["event"]) => {
      if (event.type === "activity") expectTypeOf(event.turnId).toEqualTypeOf<string>();
      if (event.type === "gap") expectTypeOf(event.reason).toEqualTypeOf<"trimmed" | "unavailable">();
      // @ts-expect-error what is stored has no activity
      if (event.type === "committed") event.activity;
    };
    (session: Session, cursor: string) => {
      session.observe({ from: "turn", signal: new AbortController().signal, children: true });
      session.observe({ from: cursor });
      // @ts-expect-error a place is a word or a cursor
      session.observe({ from: 7 });
      // @ts-expect-error no such option
      session.observe({ since: "turn" });
    };
  });

  it("say what a turn came to by its id", () => {
    expectTypeOf<Session["turnResult"]>().returns.resolves.toEqualTypeOf<TurnResult>();
    // @ts-expect-error an id is a text
    (session: Session) => session.turnResult(1);
  });

  it("say what sessions are listed by", () => {
    expectTypeOf<Troupe["listSessions"]>().parameter(0).toEqualTypeOf<ListRequest | undefined>();
    expectTypeOf<Troupe["listSessions"]>().returns.resolves.toEqualTypeOf<SessionPage>();
    expectTypeOf<SessionPage["sessions"][number]["state"]>().toEqualTypeOf<"idle" | "unfinished" | "waiting">();
    expectTypeOf<SessionPage["next"]>().toEqualTypeOf<string | null>();
    expectTypeOf<Troupe["has"]>().toEqualTypeOf<(id: string) => Promise<boolean>>();
    (troupe: Troupe) => {
      troupe.listSessions({ prefix: "chat/", state: "waiting", metadata: { topic: "billing" }, orderBy: "changed" });
      // @ts-expect-error no such state
      troupe.listSessions({ state: "running" });
      // @ts-expect-error metadata are texts
      troupe.listSessions({ metadata: { topic: 7 } });
      // @ts-expect-error no such order
      troupe.listSessions({ orderBy: "updatedAt" });
    };
  });
});

describe("the types of going back", () => {
  it("say where the conversation ends, and what was left", () => {
    expectTypeOf<Session["rewind"]>().toEqualTypeOf<(node: string | null) => Promise<Rewound>>();
    expectTypeOf<Rewound>().toEqualTypeOf<{
      readonly node: string | null;
      readonly messageCount: number;
      readonly frameId: string;
      readonly left: string | null;
    }>();
    // @ts-expect-error a place has to be named
    (session: Session) => session.rewind();
  });
});

describe("the types of what tenants spend and share", () => {
  it("ask for a period with each budget", () => {
    expectTypeOf<TenantBudget["period"]>().toEqualTypeOf<"day" | "month" | { readonly ms: number }>();
    expectTypeOf<Troupe["tenantSpending"]>().returns.resolves.toEqualTypeOf<TenantSpendingReport>();
    (troupe: Troupe): Pick<TroupeOptions, "tenantBudgets"> => {
      troupe.setTenantBudget("acme", { maxTokens: 1, period: { ms: 3_600_000 } });
      troupe.setTenantBudget("acme", null);
      // @ts-expect-error a budget has a period
      troupe.setTenantBudget("acme", { maxTokens: 1 });
      // @ts-expect-error no such period
      troupe.setTenantBudget("acme", { maxTokens: 1, period: "week" });
      return { tenantBudgets: { default: { maxCost: 5, period: "month", whenSpent: "pause" } } };
    };
  });

  it("give the host what plugins share, whose types it does not know", () => {
    expectTypeOf<Troupe["shared"]["get"]>().returns.resolves.toEqualTypeOf<SharedEntry | undefined>();
    expectTypeOf<SharedEntry["state"]>().toEqualTypeOf<unknown>();
  });
});

describe("the types of structured output", () => {
  it("give the value of the schema, and none to a turn without one", () => {
    (session: Session) => {
      const schema = z.object({ celsius: z.number().default(0) });
      expectTypeOf(session.turn("hi", { output: schema })).resolves.toEqualTypeOf<OutputResult<{ celsius: number }>>();
      expectTypeOf(session.turn("hi")).resolves.toEqualTypeOf<TurnResult>();
      // @ts-expect-error a shape is no schema
      session.turn("hi", { output: { city: z.string() } });
    };
  });
});
