import { type AnswerOutcome, completionUnknown } from "../../kernel/index.js";
import type { PendingPage, PendingRequest } from "../../store/index.js";
import type { Runtime } from "../places/index.js";
import {
  type ApproveOptions,
  answerCall,
  answerOutcome,
  type DenyOptions,
  noOf,
  pendingCalls,
  yesOf,
} from "./answering.js";
import { outputOf, type ToolAnswer } from "./tool-answer.js";

/** What a host does about calls that wait for somebody outside. */
export abstract class TroupeAnswers {
  protected abstract get runtime(): Runtime;

  /**
   * Gives the answer of a tool call that waits for it: one whose tool returned `pendingTool()`. The first answer counts;
   * `completion_unknown` when no call waits under the key.
   *
   * @example
   * await troupe.completeTool(key, { value: "approved" });
   */
  async completeTool(key: string, answer: ToolAnswer): Promise<void> {
    this.runtime.checkOpen();
    const outcome = await answerCall(this.runtime, key, outputOf(answer));
    if (outcome !== "counted") throw completionUnknown(key, outcome);
  }

  /**
   * Says yes to a call that waits for one: its tool runs, with the arguments that were shown or with `args`. Says what
   * became of it: `counted`, or why not, such as `already_answered`.
   *
   * @example
   * if ((await troupe.approve(key)) === "already_answered") tell("Somebody was quicker.");
   */
  async approve(key: string, options: ApproveOptions = {}): Promise<AnswerOutcome> {
    this.runtime.checkOpen();
    return answerOutcome(this.runtime, key, yesOf(options), options);
  }

  /**
   * Says no to a call that waits for a yes: its tool does not run, and the model reads the reason.
   *
   * @example
   * await troupe.deny(key, { reason: "Refunds above 500 need a second receipt." });
   */
  async deny(key: string, options: DenyOptions): Promise<AnswerOutcome> {
    this.runtime.checkOpen();
    return answerOutcome(this.runtime, key, noOf(options), options);
  }

  /**
   * The calls that wait for somebody outside, over all sessions, page by page, the longest waiting first. They come from
   * the store; without a journal, from the sessions that are in memory.
   *
   * @example
   * const { calls } = await troupe.pending({ tenant: "acme" });
   * for (const { key, toolName, args, announcement } of calls) show(key, toolName, args, announcement);
   */
  async pending(request: PendingRequest = {}): Promise<PendingPage> {
    this.runtime.checkOpen();
    return pendingCalls(this.runtime, request);
  }
}
