import type { CodeTable } from "./entry.js";

/** Opening, forking, configuring and closing sessions. */
export const SESSIONS = {
  invalid_session_id: {
    cause: "The id of a session is empty, too long, or has control characters.",
    cure: "Use 1 to 256 printable characters.",
  },
  invalid_session_request: {
    cause: "A plugin or a fork asked for a session with something wrong in the request.",
    cure: "Correct the field that the message names.",
  },
  invalid_config: {
    cause: "`session.configure` was given a setting that is unknown or cannot be used.",
    cure: "Correct the setting that the message names.",
  },
  invalid_budget: {
    cause: "A budget is not made of numbers from 0.",
    cure: "Correct the field that the message names.",
  },
  invalid_cache_policy: {
    cause: "`cache` is neither `auto`, `off` nor a list of up to four known points.",
    cure: "Correct what the message names; `docs/models.md` lists the points.",
  },
  invalid_window: {
    cause: "`window` is not made of whole numbers, or keeps as many messages as it may have.",
    cure: "Correct the field that the message names.",
  },
  invalid_compaction: {
    cause: "`compaction` has a field that is not known, or one that cannot be.",
    cure: "Correct the field that the message names.",
  },
  invalid_fork: {
    cause: "The options of `fork` cannot be used.",
    cure: "Correct the option that the message names.",
  },
  invalid_nodes: {
    cause: "Messages to append to a conversation have a wrong shape or a parent that is not there.",
    cure: "Correct the node that the message names.",
  },
  node_unknown: {
    cause: "A fork is to start, or a session to be rewound, at a node that is not the session's.",
    cure: "Take the node from `session.messages()` or `session.tree()` of the same session.",
  },
  node_unanswered: {
    cause: "A fork is to start, or a session to be rewound, at a node where a tool call has no result yet.",
    cure: "Take a node before the call or after its result.",
  },
  authority_widened: {
    cause: "A child session would have a tool, a depth or options that its parent does not have.",
    cure: "Ask for no more than the parent has.",
  },
  plugin_not_droppable: {
    cause: "A child session is to do without a plugin that is not marked for that.",
    cure: "Set `optionalInChildren: true` in the plugin's entry.",
  },
  session_exists: {
    cause: "A session is to be created under an id that is taken.",
    cure: "Open it with `troupe.session(id)`, or choose another id.",
  },
  session_unknown: {
    cause: "There is no session of that id in this runtime or store.",
    cure: "Check the id; `listSessions` says which there are.",
  },
  session_busy: {
    retryable: "sometimes",
    cause: "The session has something under way that must end first.",
    cure: "Await its turn, or cancel it, then try again. A session cannot close itself from within one of its own calls.",
  },
  session_closed: {
    retryable: "sometimes",
    cause: "The session was closed, or is closing.",
    cure: "Ask the runtime for the session again.",
  },
  session_deleted: {
    cause: "The session was deleted. Its id is not used again.",
    cure: "Choose another id.",
  },
  session_moved: {
    retryable: true,
    cause: "The session was opened by another process or runtime since; nothing of this call was stored.",
    cure: "Open it again to go on with it here.",
  },
  session_stale: {
    retryable: true,
    cause: "What this worker has in memory of the session is older than the store.",
    cure: "Ask again: the session is opened from the store.",
  },
  session_open_failed: {
    cause: "The session could not be opened, for a reason that is no error of Troupe.",
    cure: "See the `cause`.",
  },
  session_park_failed: {
    cause: "The session could not be written to the store before leaving memory.",
    cure: "See the `cause`; the session stays open.",
  },
  session_restore_failed: {
    cause: "A plugin could not take up its stored state of this session.",
    cure: "Mend the plugin's `restore` or `migrate`; `details.pluginId` says whose it is.",
  },
  plugin_state_incompatible: {
    cause: "The session's state of a plugin was written by a version that the plugin cannot read.",
    cure: "Give the plugin a `migrate(state, fromVersion)`, or run the older version.",
  },
  session_not_visible: {
    cause: "A plugin named a session that is neither its own nor a descendant.",
    cure: "Name the session itself or one that it created.",
  },
  agent_unknown: {
    cause: "Nobody registered the agent, or the version that a session was begun with is gone.",
    cure: 'Register it, give the session another with `session.setAgent()`, or set `onMissingAgent: "newest"`.',
  },
  agent_mismatch: {
    cause: "A session is opened with another agent than it has.",
    cure: "Open it without one, and change its agent with `session.setAgent()`.",
  },
  plugins_mismatch: {
    cause: "A session is opened with other plugins than it was made with.",
    cure: "Leave `plugins` out: they are given when a session is made.",
  },
  tenant_mismatch: {
    cause: "The session belongs to another tenant than the one named.",
    cure: "Name its own tenant, or none.",
  },
  mailbox_full: {
    retryable: true,
    cause: "As many turns of the session are waiting as `mailboxLimit` allows.",
    cure: "Ask again when some have finished.",
  },
  frame_exists: {
    cause: "A frame of that id is in the session already.",
    cure: "Use another frame id.",
  },
  frame_unknown: {
    cause: "The session has no frame of that id.",
    cure: "Check the id.",
  },
  frame_switch_failed: {
    cause: "A plugin's hook or the store failed while the session went to another frame.",
    cure: "Read the issue's message.",
  },
  invalid_observe: {
    cause: "An option of `session.observe` is unknown or cannot be used, or two of them say where to begin.",
    cure: "Correct what the message names.",
  },
  cursor_invalid: {
    cause: "`observe` was given a cursor that no event of this session had.",
    cure: "Pass on the `cursor` of the last event you have, unchanged, or none to begin now.",
  },
} satisfies CodeTable;
