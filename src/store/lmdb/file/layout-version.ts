// Apart from the rest of the layout, because declarations of the package lead here and must not lead to those of LMDB.

/** What a store says of itself. */
export interface Layout {
  readonly version: number;
  /** There while the store is being brought to this version. */
  readonly migration?: MigrationMark;
}

/** How far the way to the newest layout has been gone. */
export interface MigrationMark {
  /** The version the records of the table still have. */
  readonly from: number;
  /** The table that is being changed, and the last of its keys that is; null: none is yet. */
  readonly table: "heads" | "segments";
  readonly key: string | null;
  /** Records that were looked at since the migration began, in all tables, of how many. */
  readonly done: number;
  readonly total: number;
}

/** How far a migration is. */
export type MigrationProgress = Pick<MigrationMark, "done" | "total">;
