import type { ModelEvent, ModelRequest, ModelRetry, ReplayDrop } from "../../kernel/index.js";
import type { Script } from "./script.js";

/**
 * The one thing a session needs from a language model. A successful stream ends with exactly one `finish`;
 * a failed one throws a TroupeError; an aborted one throws `aborted`.
 *
 * @example
 * const model: Model = {
 *   id: "shout",
 *   async *stream(request) {
 *     yield { type: "text_delta", blockId: "0", text: "HELLO" };
 *     yield { type: "finish", reason: "stop", usage: NO_USAGE };
 *   },
 * };
 */
export interface Model {
  /** Names the model wherever its use is told: `provider:modelId` of an AI SDK model, `scripted` of a script. */
  readonly id: string;
  /**
   * Names exactly who answers: `provider:modelId@endpoint` of an AI SDK model. Answers are stamped with it, and what they
   * carry for their provider alone (signatures, encrypted reasoning) goes back to no other route. Default: the id.
   */
  readonly route?: string;
  /** How failures of this model are repeated: over what the runtime says, under what a turn says. */
  readonly modelRetry?: ModelRetry;
  /**
   * Can it answer this request in a form of its own (`request.output`)? A model that cannot, or does not say, is given the
   * form as a tool that it ends with.
   */
  readonly answersInForm?: (request: ModelRequest) => boolean;
  /** `onReplayDropped`: told what of earlier answers is left out, because another route minted it. */
  stream(request: ModelRequest, signal: AbortSignal, onReplayDropped?: ReportReplayDrops): AsyncIterable<ModelEvent>;
}

export type ReportReplayDrops = (drops: readonly ReplayDrop[]) => void;

/**
 * Where a session worker gets its model from. Plain data, because it crosses threads: code is named by module URL.
 *
 * @example
 * const source: ModelSource = { kind: "module", url: new URL("./model.js", import.meta.url).href };
 */
export type ModelSource = (
  | { readonly kind: "scripted"; readonly script: Script }
  | {
      readonly kind: "module";
      readonly url: string;
      /** Plain data for the function the module exports. */
      readonly options?: unknown;
    }
) & {
  /** How failures of this model are repeated, over what its module says. */
  readonly modelRetry?: ModelRetry;
};

/**
 * What the function that a model module exports is called with. It is called once for each tenant and agent on each
 * session worker, so that every tenant can have a key of its own.
 *
 * @example
 * import { createAnthropic } from "@ai-sdk/anthropic";
 * import type { ModelContext } from "troupe";
 *
 * export default ({ secrets }: ModelContext) => createAnthropic({ apiKey: secrets.ANTHROPIC_API_KEY })("claude-sonnet-4-5");
 */
export interface ModelContext<Options = unknown> {
  /** Whose session asks; undefined for a session without a tenant. */
  readonly tenant: string | undefined;
  /** The session's agent with its version, `support@3`; undefined for a session without one. */
  readonly agent: string | undefined;
  /** What the host's `secrets` returned for the tenant; empty when it gives none. */
  readonly secrets: Readonly<Record<string, string>>;
  /** What stands beside the module: `model: { module, options }`. */
  readonly options: Options;
}

/** A module that makes a model for each tenant and agent. */
export interface ModelFactory {
  readonly url: string;
  readonly options: unknown;
  make(context: ModelContext): Promise<Model>;
}
