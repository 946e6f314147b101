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
export { aborted, asTroupeError, messageOf, refusal, TroupeError } from "./errors.js";
export {
  type AppendNode,
  type AppendRequest,
  type AppendResult,
  checkAppend,
  checkNodes,
  FIRST_FRAME,
  type FrameRecord,
  isConversation,
  type Message,
  messageOfNode,
  type Origin,
  type Part,
  type ProviderMetadata,
  type Role,
  textOf,
} from "./history/messages.js";
export {
  historyDamaged,
  isOnPath,
  miscounted,
  nodeId,
  type OutlineOf,
  parseNodeId,
  pathTo,
  type Segment,
  type SegmentOutline,
  segmentId,
  type TreeNode,
  treeOf,
} from "./history/segment.js";
export {
  checkSessionId,
  completionKeyOf,
  frameTaskOf,
  sessionOfCompletion,
  turnIdOf,
  turnOfFrameTask,
  turnOfMessage,
} from "./ids.js";
export { definedOnly, isRecord, type Json, type JsonObject } from "./json.js";
export {
  type AttemptRecord,
  type CodeResult,
  type DirectOutput,
  type FinishReason,
  type ModelCallRecord,
  type ModelEvent,
  type ModelEvidence,
  type ModelRequest,
  type ModelResponse,
  modelCallIdOf,
  nativeToolStep,
  type ProtocolStep,
  type ReplayDrop,
  ResponseBuilder,
  usageOfCall,
} from "./model/model.js";
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
export { changeConfig, checkConfig, DEFAULT_CONFIG, type SessionConfig, sameConfig } from "./session/config.js";
export {
  type Authority,
  type CatalogOverlay,
  checkCreateRequest,
  isUnlimited,
  NO_AUTHORITY,
  narrowAuthority,
  narrowingProblem,
  type SessionCreateRequest,
  type StoredAuthority,
  type SubagentContext,
} from "./session/create-session.js";
export { type Head, uncounted } from "./session/head.js";
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
  checkRetryPolicy,
  delayBeforeRetry,
  exhaustedRetries,
  isToolOutput,
  renderToolOutput,
  type ToolCall,
  type ToolControl,
  type ToolFailureKind,
  type ToolOutput,
  type ToolRecord,
  type ToolRetry,
  type ToolRetryPolicy,
  type ToolSpec,
  toolFailure,
  toolIdOf,
} from "./tools/tools.js";
export {
  ACTIVITY_TYPES,
  ACTIVITY_VERSION,
  type Activity,
  ActivityBuffer,
  activitiesUpTo,
  type BufferRules,
  joinDeltas,
  type TurnIssue,
  type TurnOutcome,
  type TurnResult,
  type TurnSummary,
} from "./turn/activity.js";
export { startTurn, stepTurn } from "./turn/turn.js";
export {
  type AttachmentPolicy,
  type AttachmentSource,
  addInput,
  admitInput,
  type CancelledInput,
  type CheckpointKind,
  cancelInput,
  checkTurnInput,
  claimAtCheckpoint,
  claimForTurn,
  DEFAULT_ATTACHMENTS,
  deferMissed,
  type InputItem,
  type PendingInput,
  partsOfInput,
  type TurnInput,
  withoutInputs,
} from "./turn/turn-input.js";
export type { StorableTurn, TurnConfig, TurnEffect, TurnEvent, TurnState } from "./turn/turn-state.js";
export { resultOf } from "./turn/turn-steps.js";
export {
  checkBudget,
  checkPrices,
  type ModelPrices,
  type SessionBudget,
  type SpendingReport,
  spentOf,
  whySpent,
} from "./usage/budget.js";
export {
  addEntry,
  addLedgers,
  addUsage,
  checkUsage,
  isZeroUsage,
  type Ledger,
  type LedgerEntry,
  ledgerOf,
  ledgerSince,
  NO_USAGE,
  OWN_SOURCE,
  sharingOwn,
  UNKNOWN_MODEL,
  type Usage,
  type UsageReport,
  usageReport,
} from "./usage/usage.js";
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
