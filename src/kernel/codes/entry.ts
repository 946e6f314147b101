/** What docs/errors.md says of one code. */
export interface CodeEntry {
  /** May the same call succeed when it is made again, unchanged? Absent: no. `sometimes`: `error.retryable` says it. */
  readonly retryable?: true | "sometimes";
  readonly cause: string;
  readonly cure: string;
}

/** The codes of one subject, in the order in which docs/errors.md lists them. */
export type CodeTable = Readonly<Record<string, CodeEntry>>;
