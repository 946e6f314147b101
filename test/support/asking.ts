import { type Ledger, type Session, type TroupeOptions, type TurnResult, usageReport } from "troupe";
import { firstToolValue, fixture, plugin } from "./runtime.js";

/** What the asking plugin says of each call: its value, the code of its error, or that there is no such method. */
export interface Answer {
  readonly value?: unknown;
  readonly error?: string;
  readonly missing?: true;
}
/** The value of an answer that has one. */
export function valueIn<T>(answer: Answer | undefined): T {
  if (answer === undefined || !("value" in answer)) throw new Error(`There is no value: ${JSON.stringify(answer)}`);
  return answer.value as T;
}

export type Call = readonly [method: string, ...args: unknown[]];

/** What the model is to do in a turn, one entry for each of its calls. */
export const told = (...steps: readonly object[]) => JSON.stringify(steps);

/** Asks between turns. */
export const ask = async (session: Session, ...calls: readonly Call[]) =>
  (await session.command("host.ask", { calls })).output as readonly Answer[];

export const askOne = async (session: Session, ...call: Call) => (await ask(session, call))[0] as Answer;

/** A turn in which a tool asks. */
export const turnThatAsks = (session: Session, ...calls: readonly Call[]) =>
  session.turn(told({ call: "ask_host", args: { calls } }, { say: "done" }));

/** Asks in the middle of a turn. */
export const askInTurn = async (session: Session, ...calls: readonly Call[]) =>
  firstToolValue(await turnThatAsks(session, ...calls)) as readonly Answer[];

export const usage = (inputTokens: number, outputTokens: number): TurnResult["usage"] => ({
  inputTokens,
  outputTokens,
  cacheReadTokens: 0,
  cacheWriteTokens: 0,
  reasoningTokens: 0,
});

/** What a session has spent beside its own turns, by source. */
export function spentBeside({ ledger }: { readonly ledger: Ledger }): Readonly<Record<string, TurnResult["usage"]>> {
  const { turn: _own, ...beside } = usageReport(ledger).bySource;
  return beside;
}

/** A runtime with the asking plugin and a model that does as it is told; every model call costs 10 and 5 tokens. */
export const asking = (tier: "worker" | "inline", options: TroupeOptions = {}): TroupeOptions => ({
  sessionWorkers: 2,
  drainMs: 500,
  model: fixture("models/told.mjs"),
  plugins: [{ module: plugin("asks-host"), options: {}, tier }],
  ...options,
});
