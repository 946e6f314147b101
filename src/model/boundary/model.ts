import type { ModelEvent, ModelRequest, ReplayDrop } from "../../kernel/index.js";
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
export type ModelSource =
  | { readonly kind: "scripted"; readonly script: Script }
  | { readonly kind: "module"; readonly url: string };
