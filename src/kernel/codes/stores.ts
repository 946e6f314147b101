import type { CodeTable } from "./entry.js";

/** The store, its upkeep, exports and backups. */
export const STORES = {
  store_path_not_a_directory: {
    cause: "The path of the store is a file.",
    cure: "Give the store a folder of its own.",
  },
  store_not_writable: {
    cause: "The folder of the store cannot be created or written.",
    cure: "Check the path and its permissions.",
  },
  store_held: {
    cause: "Another process, or another runtime of this one, has the store open.",
    cure: "Close it there, or choose another path.",
  },
  store_open_failed: {
    cause: "The store cannot be opened or read, or there is none at that path.",
    cure: "Check the path; the rest of the message says what the disk answered.",
  },
  store_version_unknown: {
    cause: "The store was written by a later release.",
    cure: "Use the release that wrote it.",
  },
  store_damaged: {
    cause: "Something in the store cannot be read.",
    cure: "Run `verifyStore`, then restore a backup or run `repairStore` (docs/durability.md).",
  },
  store_write_failed: {
    retryable: true,
    cause: "A write failed, and nothing of it was stored.",
    cure: "Check the disk, then try again.",
  },
  store_lost: {
    cause: "The store's thread is gone, and nothing can be stored any more.",
    cure: "Restart the process. What was answered is stored.",
  },
  store_closed: {
    cause: "The store was closed.",
    cure: "Create another runtime.",
  },
  store_not_on_disk: {
    cause: "A store in memory has no files to back up.",
    cure: "Export its sessions instead.",
  },
  store_not_open: {
    cause: "A store's thread was asked before it was opened.",
    cure: "Report it: the runtime opens it first.",
  },
  store_already_open: {
    cause: "A store's thread was to open a second store.",
    cure: "Report it: each store has a thread of its own.",
  },
  head_conflict: {
    retryable: true,
    cause: "Somebody else changed the session in the store since it was read.",
    cure: "Open the session again. One session is written by one runtime at a time.",
  },
  history_missing: {
    retryable: true,
    cause: "A commit continues a conversation that is not stored.",
    cure: "Open the session again.",
  },
  history_damaged: {
    cause: "A stored conversation cannot be read.",
    cure: "Run `verifyStore`, then restore a backup or run `repairStore`.",
  },
  journal_damaged: {
    cause: "A row of a session's journal is missing.",
    cure: "Run `verifyStore`, then restore a backup or run `repairStore`.",
  },
  component_missing: {
    retryable: "sometimes",
    cause: "A session refers to a part that is not stored.",
    cure: "Run `verifyStore`, then restore a backup or run `repairStore`.",
  },
  component_damaged: {
    cause: "A stored part was changed after it was written.",
    cure: "Run `verifyStore`, then restore a backup or run `repairStore`.",
  },
  snapshot_damaged: {
    cause: "A stored record cannot be read.",
    cure: "Run `verifyStore`, then restore a backup or run `repairStore`.",
  },
  snapshot_version_unknown: {
    cause: "A stored record was written by a later release.",
    cure: "Use the release that wrote it.",
  },
  operation_conflict: {
    cause: "A commit was made before under the same name and meant something else.",
    cure: "Report it, unless the store is one of your own making.",
  },
  invalid_commit: {
    cause: "A commit contradicts itself.",
    cure: "Report it, unless the store is one of your own making.",
  },
  commit_too_large: {
    cause: "A turn, a row or the outcome of a call has more bytes or messages than one commit may have.",
    cure: "Return less from tools, or keep large data as attachments.",
  },
  invalid_row: {
    cause: "A row of a plugin's table cannot be stored.",
    cure: "Correct what the message names.",
  },
  row_conflict: {
    retryable: true,
    cause: "Somebody else changed a row since it was read.",
    cure: "Read it again, then write.",
  },
  invalid_list: {
    cause: "The request of `listSessions` or `pending` cannot be used.",
    cure: "Correct what the message names.",
  },
  import_incomplete: {
    cause: "A session that is imported refers to something it does not bring.",
    cure: "Export it again, whole.",
  },
  export_damaged: {
    cause: "The bytes to import are no exported session, or not a whole one.",
    cure: "Export it again.",
  },
  export_version_unknown: {
    cause: "The session was exported by a later release.",
    cure: "Import it with the release that wrote it.",
  },
  export_file_failed: {
    cause: "The file of an export cannot be written or read.",
    cure: "Check the path and the disk.",
  },
  backup_exists: {
    cause: "The folder of a backup is not empty.",
    cure: "Give each backup a folder of its own.",
  },
  backup_failed: {
    cause: "The files of a backup cannot be written.",
    cure: "Check the path and the disk.",
  },
} satisfies CodeTable;
