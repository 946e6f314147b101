/**
 * The kernel: rules over plain values, without I/O, clock or chance. What stands here is what other rooms use of it;
 * the kernel's own tests reach into its files.
 */

export {
  type AbortTurn,
  type AfterToolDirective,
  type AfterTurnDirective,
  type BeforeToolDirective,
  type CreateSession,
  type Directive,
  type EmitEvents,
  type EmitTrace,
  type EnqueuedMessage,
  type EnqueueMessages,
  foldTurnDirectives,
  NO_DIRECTIVES,
  type Owned,
  type PluginEvent,
  type ReplaceToolArgs,
  type ShortCircuitTool,
  type TurnDirective,
  type TurnDirectives,
} from "./directives/directives.js";
export { composeAfterToolCall, composeBeforeToolCall, type ToolVerdict } from "./directives/tool-hooks.js";
export { aborted, asTroupeError, messageOf, TroupeError } from "./errors.js";
export {
  type AppendNode,
  type AppendRequest,
  type AppendResult,
  checkAppend,
  checkNodes,
  FIRST_FRAME,
  type FrameRecord,
  isConversation,
  messageOfNode,
} from "./history/graph.js";
export { type Message, type Origin, type Part, type ProviderMetadata, type Role, textOf } from "./history/messages.js";
export {
  historyDamaged,
  isOnPath,
  miscounted,
  nodesBetween,
  type OutlineOf,
  pathTo,
  type TreeNode,
  treeOf,
} from "./history/path.js";
export { nodeId, parseNodeId, type Segment, type SegmentOutline, segmentId } from "./history/segment.js";
export {
  checkSessionId,
  completionKeyOf,
  frameTaskOf,
  sessionOfCompletion,
  turnIdOf,
  turnOfFrameTask,
  turnOfMessage,
} from "./ids.js";
export { isRecord, type Json, type JsonObject } from "./json.js";
export {
  type AttemptRecord,
  type DirectOutput,
  type FinishReason,
  type ModelCallRecord,
  type ModelEvent,
  type ModelEvidence,
  type ModelRequest,
  type ModelResponse,
  modelCallIdOf,
  type ReplayDrop,
  usageOfCall,
} from "./model/model.js";
export { type CodeResult, nativeToolStep, type ProtocolStep } from "./model/protocol-step.js";
export { ResponseBuilder } from "./model/response.js";
export {
  type ContextPiece,
  checkPieces,
  contextMessages,
  firstPlace,
  type HistoryEnd,
  type PreparedContext,
  wholeContext,
} from "./prompt/context.js";
export {
  checkPromptLayer,
  PROMPT_SLOTS,
  PromptCache,
  type PromptContribution,
  type PromptLayer,
  type PromptSlot,
} from "./prompt/prompt.js";
export { isUnlimited, NO_AUTHORITY, narrowAuthority, type StoredAuthority } from "./session/authority.js";
export { changeConfig, checkConfig, DEFAULT_CONFIG, type SessionConfig, sameConfig } from "./session/config.js";
export {
  type Authority,
  type CatalogOverlay,
  checkCreateRequest,
  narrowingProblem,
  type SessionCreateRequest,
  type SubagentContext,
} from "./session/create-session.js";
export { type Head, uncounted } from "./session/head.js";
export {
  checkRetryPolicy,
  delayBeforeRetry,
  exhaustedRetries,
  type ToolRetry,
  type ToolRetryPolicy,
} from "./tools/tool-retry.js";
export {
  checkToolState,
  isToolAtLeast,
  setToolAvailability,
  setToolMembership,
  type ToolAvailability,
  type ToolState,
  type ToolStateEntry,
  toolAvailabilityOf,
  toolStateOf,
} from "./tools/tool-state.js";
export {
  isToolOutput,
  renderToolOutput,
  type ToolCall,
  type ToolControl,
  type ToolFailureKind,
  type ToolOutput,
  type ToolRecord,
  type ToolSpec,
  toolFailure,
  toolIdOf,
} from "./tools/tools.js";
export { ACTIVITY_TYPES, ACTIVITY_VERSION, type Activity } from "./turn/activity.js";
export { ActivityBuffer, activitiesUpTo, type BufferRules, joinDeltas } from "./turn/activity-buffer.js";
export type { CheckpointKind } from "./turn/checkpoint.js";
export type { TurnIssue, TurnOutcome, TurnResult, TurnSummary } from "./turn/outcome.js";
export {
  addInput,
  type CancelledInput,
  cancelInput,
  claimAtCheckpoint,
  claimForTurn,
  deferMissed,
  type PendingInput,
  partsOfInput,
  withoutInputs,
} from "./turn/pending-inputs.js";
export { startTurn, stepTurn } from "./turn/turn.js";
export { resultOf } from "./turn/turn-effects.js";
export {
  type AttachmentPolicy,
  type AttachmentSource,
  admitInput,
  checkTurnInput,
  DEFAULT_ATTACHMENTS,
  type InputItem,
  type TurnInput,
} from "./turn/turn-input.js";
export type { StorableTurn, TurnConfig, TurnEffect, TurnEvent, TurnState } from "./turn/turn-state.js";
export {
  checkBudget,
  checkPrices,
  type ModelPrices,
  type SessionBudget,
  type SpendingReport,
  type Spent,
  spentOf,
  whySpent,
} from "./usage/budget.js";
export {
  addEntry,
  addLedgers,
  type Ledger,
  type LedgerEntry,
  ledgerOf,
  ledgerSince,
  OWN_SOURCE,
  sharingOwn,
  UNKNOWN_MODEL,
  type UsageReport,
  usageReport,
} from "./usage/ledger.js";
export { addUsage, checkUsage, isZeroUsage, NO_USAGE, type Usage } from "./usage/usage.js";
export {
  COMMIT_BUDGET,
  type Commit,
  type CommitBudget,
  type StoredHead,
  sessionDeleted,
  sessionExists,
} from "./writes/commit.js";
export {
  answerKeyOf,
  canonicalJson,
  fingerprint,
  type JournalEntry,
  type JournalRow,
  keptEnvelope,
} from "./writes/journal.js";
export { planWrites, replayMismatch } from "./writes/write-plan.js";
export type {
  Change,
  ChangeCount,
  CommitReceipt,
  ImportWrite,
  JournalClearing,
  JournalMark,
  JournalReceipt,
  StoreWrite,
  SweepWrite,
  WriteFacts,
  WriteReceipt,
  WriteResult,
} from "./writes/writes.js";
