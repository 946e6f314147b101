/**
 * The kernel: rules over plain values, without I/O, clock or chance. What stands here is what other rooms use of it;
 * the kernel's own tests reach into its files.
 */
export { ACTIVITY_TYPES, ACTIVITY_VERSION, type Activity } from "./activity.js";
export { ActivityBuffer, activitiesUpTo, type BufferRules, joinDeltas } from "./activity-buffer.js";
export { isUnlimited, NO_AUTHORITY, narrowAuthority, type StoredAuthority } from "./authority.js";
export {
  checkBudget,
  checkPrices,
  type ModelPrices,
  type SessionBudget,
  type SpendingReport,
  type Spent,
  spentOf,
  whySpent,
} from "./budget.js";
export type { CheckpointKind } from "./checkpoint.js";
export {
  COMMIT_BUDGET,
  type Commit,
  type CommitBudget,
  type StoredHead,
  sessionDeleted,
  sessionExists,
} from "./commit.js";
export { changeConfig, checkConfig, DEFAULT_CONFIG, type SessionConfig, sameConfig } from "./config.js";
export {
  type ContextPiece,
  checkPieces,
  contextMessages,
  firstPlace,
  type HistoryEnd,
  type PreparedContext,
  wholeContext,
} from "./context.js";
export {
  type Authority,
  type CatalogOverlay,
  checkCreateRequest,
  narrowingProblem,
  type SessionCreateRequest,
  type SubagentContext,
} from "./create-session.js";
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
} from "./directives.js";
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
} from "./graph.js";
export { type Head, uncounted } from "./head.js";
export {
  checkSessionId,
  completionKeyOf,
  frameTaskOf,
  sessionOfCompletion,
  turnIdOf,
  turnOfFrameTask,
  turnOfMessage,
} from "./ids.js";
export {
  answerKeyOf,
  canonicalJson,
  fingerprint,
  type JournalEntry,
  type JournalRow,
  keptEnvelope,
} from "./journal.js";
export { isRecord, type Json, type JsonObject } from "./json.js";
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
} from "./ledger.js";
export { type Message, type Origin, type Part, type ProviderMetadata, type Role, textOf } from "./messages.js";
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
} from "./model.js";
export type { TurnIssue, TurnOutcome, TurnResult, TurnSummary } from "./outcome.js";
export {
  historyDamaged,
  isOnPath,
  miscounted,
  nodesBetween,
  type OutlineOf,
  pathTo,
  type TreeNode,
  treeOf,
} from "./path.js";
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
} from "./pending-inputs.js";
export {
  checkPromptLayer,
  PROMPT_SLOTS,
  PromptCache,
  type PromptContribution,
  type PromptLayer,
  type PromptSlot,
} from "./prompt.js";
export { type CodeResult, nativeToolStep, type ProtocolStep } from "./protocol-step.js";
export { ResponseBuilder } from "./response.js";
export { nodeId, parseNodeId, type Segment, type SegmentOutline, segmentId } from "./segment.js";
export { composeAfterToolCall, composeBeforeToolCall, type ToolVerdict } from "./tool-hooks.js";
export {
  checkRetryPolicy,
  delayBeforeRetry,
  exhaustedRetries,
  type ToolRetry,
  type ToolRetryPolicy,
} from "./tool-retry.js";
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
} from "./tool-state.js";
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
} from "./tools.js";
export { startTurn, stepTurn } from "./turn.js";
export { resultOf } from "./turn-effects.js";
export {
  type AttachmentPolicy,
  type AttachmentSource,
  admitInput,
  checkTurnInput,
  DEFAULT_ATTACHMENTS,
  type InputItem,
  type TurnInput,
} from "./turn-input.js";
export type { StorableTurn, TurnConfig, TurnEffect, TurnEvent, TurnState } from "./turn-state.js";
export { addUsage, checkUsage, isZeroUsage, NO_USAGE, type Usage } from "./usage.js";
export { planWrites, replayMismatch } from "./write-plan.js";
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
} from "./writes.js";
