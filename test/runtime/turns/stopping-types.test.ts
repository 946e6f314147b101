import { describe, expectTypeOf, it } from "vitest";
import type {
  CancelledTurn,
  CancelOptions,
  Session,
  Troupe,
  TroupeOptions,
  Turn,
  TurnOptions,
} from "../../../src/index.js";

/** These tests are read by the compiler too: a line that should not compile and does is an error of `npm run check`. */

describe("the types of stopping", () => {
  it("say what session.cancel takes and answers", () => {
    expectTypeOf<Session["cancel"]>().parameters.toEqualTypeOf<
      [reason?: string | undefined, options?: CancelOptions | undefined]
    >();
    expectTypeOf<Session["cancel"]>().returns.resolves.toEqualTypeOf<"cancelled" | "idle">();
    expectTypeOf<CancelOptions>().toEqualTypeOf<{ readonly keepPartial?: boolean }>();
  });

  it("say what troupe.cancelTurn takes and answers", () => {
    expectTypeOf<Troupe["cancelTurn"]>().parameters.toEqualTypeOf<
      [sessionId: string, turnId: string, reason?: string | undefined, options?: CancelOptions | undefined]
    >();
    expectTypeOf<Troupe["cancelTurn"]>().returns.resolves.toEqualTypeOf<CancelledTurn>();
    expectTypeOf<CancelledTurn>().toEqualTypeOf<"cancelled" | "ended" | "unknown">();
  });

  it("give a turn's handle the same options, and no answer: its result says", () => {
    expectTypeOf<Turn["cancel"]>().parameters.toEqualTypeOf<
      [reason?: string | undefined, options?: CancelOptions | undefined]
    >();
    expectTypeOf<Turn["cancel"]>().returns.toEqualTypeOf<void>();
  });

  it("have the same time limit for a turn and for the runtime", () => {
    type Limit = "deadlineMs" | "deadlineCountsWaiting" | "deadlineKeepsPartial";
    expectTypeOf<Pick<TurnOptions, Limit>>().toEqualTypeOf<{
      readonly deadlineMs?: number | null;
      readonly deadlineCountsWaiting?: boolean;
      readonly deadlineKeepsPartial?: boolean;
    }>();
    expectTypeOf<Pick<TroupeOptions, Limit>>().toEqualTypeOf<Pick<TurnOptions, Limit>>();
  });

  it("refuse what is none of it", () => {
    (session: Session, troupe: Troupe) => {
      // @ts-expect-error a reason is a text
      session.cancel(new Error("Enough."));
      // @ts-expect-error no such option
      session.cancel("Enough.", { keepPartials: true });
      // @ts-expect-error a turn has an id
      troupe.cancelTurn("s");
      // @ts-expect-error the third is the reason
      troupe.cancelTurn("s", "t1", { keepPartial: true });
      // @ts-expect-error a number of milliseconds
      session.turn("hi", { deadlineMs: "1 s" });
    };
  });
});
