import { describe, expectTypeOf, it } from "vitest";
import { z } from "zod";
import {
  type AnswerOutcome,
  type ApprovalDemand,
  type ApproveOptions,
  type DenyOptions,
  defineTool,
  type Json,
  type PendingCall,
  type PendingPage,
  type PendingRequest,
  requireApproval,
  type Troupe,
} from "../../../src/index.js";
import type { RequireApproval } from "../../../src/plugin/authors.js";
import { definePlugin } from "../../../src/plugin/index.js";

/** These tests are read by the compiler too: a line that should not compile and does is an error of `npm run check`. */

const payment = { description: "Pays.", inputSchema: z.object({ amount: z.number() }), execute: () => "paid" };
const plugin = { id: "acme.test", version: "1.0.0", options: z.object({ limit: z.number() }) } as const;

describe("the types of asking people", () => {
  it("give a tool's approval function the arguments its schema says, and take every wish it may have", () => {
    defineTool({
      ...payment,
      approval: (args, { signal }) => {
        expectTypeOf(args).toEqualTypeOf<{ amount: number }>();
        expectTypeOf(signal).toEqualTypeOf<AbortSignal>();
        return args.amount > 100 && `Pay ${args.amount}?`;
      },
    });
    defineTool({ ...payment, approval: true });
    defineTool({ ...payment, approval: requireApproval({ allowEdit: true }) });
    defineTool({ ...payment, approval: async ({ amount }) => ({ amount }) });
    defineTool({ ...payment, approval: ({ amount }) => (amount > 1 ? requireApproval() : undefined) });
    // @ts-expect-error a text alone would always be asked: say requireApproval({ announcement })
    defineTool({ ...payment, approval: "May I?" });
    // @ts-expect-error a number says neither yes nor no
    defineTool({ ...payment, approval: ({ amount }) => amount });
    // @ts-expect-error there is no such argument
    defineTool({ ...payment, approval: ({ price }) => price > 1 });
  });

  it("give the approval of a plugin's tool the plugin's state and options", () => {
    definePlugin({
      ...plugin,
      state: () => ({ asked: 0 }),
      tools: {
        pay: {
          description: "Pays.",
          inputSchema: z.object({ amount: z.number() }),
          execute: () => "paid",
          approval: (args, { state, options }) => {
            expectTypeOf(args).toEqualTypeOf<{ amount: number }>();
            expectTypeOf(state).toEqualTypeOf<{ asked: number }>();
            expectTypeOf(options).toEqualTypeOf<{ limit: number }>();
            return args.amount > options.limit;
          },
        },
      },
    });
  });

  it("let beforeToolCall demand an approval, and no other hook", () => {
    expectTypeOf(requireApproval).parameters.toEqualTypeOf<[demand?: ApprovalDemand | undefined]>();
    expectTypeOf(requireApproval).returns.toEqualTypeOf<RequireApproval>();
    expectTypeOf<ApprovalDemand["onDeadline"]>().toEqualTypeOf<"deny" | "fail_turn" | undefined>();
    definePlugin({ ...plugin, hooks: { beforeToolCall: () => requireApproval({ deadlineMs: 1_000 }) } });
    // @ts-expect-error behind a call there is nothing to approve
    definePlugin({ ...plugin, hooks: { afterToolCall: () => requireApproval() } });
    // @ts-expect-error a turn is not approved
    definePlugin({ ...plugin, hooks: { beforeTurn: () => requireApproval() } });
    // @ts-expect-error no such deadline
    requireApproval({ onDeadline: "allow" });
  });

  it("say what pending takes and gives", () => {
    expectTypeOf<Troupe["pending"]>().parameters.toEqualTypeOf<[request?: PendingRequest | undefined]>();
    expectTypeOf<Troupe["pending"]>().returns.resolves.toEqualTypeOf<PendingPage>();
    expectTypeOf<PendingPage>().toEqualTypeOf<{
      readonly calls: readonly PendingCall[];
      readonly next: string | null;
    }>();
    expectTypeOf<PendingCall["announcement"]["kind"]>().toEqualTypeOf<
      "approval" | "client_tool" | "elicitation" | "external"
    >();
    expectTypeOf<Pick<PendingCall, "key" | "args" | "tenant" | "since" | "deadline" | "allowEdit">>().toEqualTypeOf<{
      readonly key: string;
      readonly args: Json;
      readonly tenant?: string;
      readonly since: number;
      readonly deadline?: number;
      readonly allowEdit?: true;
    }>();
  });

  it("say what an answer takes and what became of it", () => {
    expectTypeOf<Troupe["approve"]>().parameters.toEqualTypeOf<[key: string, options?: ApproveOptions | undefined]>();
    expectTypeOf<Troupe["approve"]>().returns.resolves.toEqualTypeOf<AnswerOutcome>();
    expectTypeOf<Troupe["deny"]>().parameters.toEqualTypeOf<[key: string, options: DenyOptions]>();
    expectTypeOf<Troupe["deny"]>().returns.resolves.toEqualTypeOf<AnswerOutcome>();
    expectTypeOf<AnswerOutcome>().toEqualTypeOf<
      "counted" | "already_answered" | "moved_on" | "forked" | "session_deleted"
    >();
  });

  it("refuse what is none of it", () => {
    (troupe: Troupe) => {
      // @ts-expect-error a no has a reason
      troupe.deny("key");
      // @ts-expect-error the reason is a text
      troupe.deny("key", { reason: 5 });
      // @ts-expect-error what is no JSON cannot be arguments
      troupe.approve("key", { args: () => 5 });
      // @ts-expect-error the filter is sessionId
      troupe.pending({ session: "s" });
    };
  });
});
