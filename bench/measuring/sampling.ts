/** The value below which `share` (0 to 1) of the samples lie. */
export function quantile(samples: readonly number[], share: number): number {
  if (samples.length === 0) return Number.NaN;
  const sorted = Float64Array.from(samples).sort();
  const at = (sorted.length - 1) * share;
  const low = sorted[Math.floor(at)] as number;
  const high = sorted[Math.ceil(at)] as number;
  return low + (high - low) * (at - Math.floor(at));
}

export function median(samples: readonly number[]): number {
  return quantile(samples, 0.5);
}

/** Cuts a figure to what a reader can use: three or four significant digits. */
export function rounded(value: number): number {
  if (!Number.isFinite(value) || value === 0) return value;
  const digits = Math.max(0, 3 - Math.floor(Math.log10(Math.abs(value))));
  return Number(value.toFixed(Math.min(6, digits)));
}

/** One of several things measured side by side: runs for about `ms` and says what one call cost, in microseconds. */
export interface Contender<Name extends string> {
  readonly name: Name;
  measure(ms: number): Promise<number>;
}

/** Per round one figure of every contender, so that figures of one round can be compared. */
export type Rounds<Name extends string> = readonly Readonly<Record<Name, number>>[];

export interface RoundsOptions {
  readonly budgetMs: number;
  readonly slotMs: number;
  /** Rounds to take even when the time is up. */
  readonly least: number;
  readonly onRound?: (count: number) => void;
}

/**
 * Measures the contenders in turns, a slot each, until the time is up. Noise of the machine lasts longer than a round,
 * so it hits all alike; who goes first changes with every round.
 */
export async function takeRounds<Name extends string>(
  contenders: readonly Contender<Name>[],
  { budgetMs, slotMs, least, onRound }: RoundsOptions,
): Promise<Rounds<Name>> {
  for (const contender of contenders) await contender.measure(slotMs);
  const rounds: Record<Name, number>[] = [];
  const until = performance.now() + budgetMs;
  while (rounds.length < least || performance.now() < until) {
    const round = {} as Record<Name, number>;
    for (let i = 0; i < contenders.length; i++) {
      const contender = contenders[(i + rounds.length) % contenders.length] as Contender<Name>;
      round[contender.name] = await contender.measure(slotMs);
    }
    rounds.push(round);
    onRound?.(rounds.length);
  }
  return rounds;
}

/** The middle of one contender's figures. */
export function middle<Name extends string>(rounds: Rounds<Name>, name: Name): number {
  return median(rounds.map((round) => round[name]));
}

/** The middle of what two contenders' figures come to, compared round by round. */
export function compare<Name extends string>(
  rounds: Rounds<Name>,
  how: (round: Readonly<Record<Name, number>>) => number,
): { readonly middle: number; readonly low: number; readonly high: number } {
  const figures = rounds.map(how);
  return { middle: median(figures), low: quantile(figures, 0.1), high: quantile(figures, 0.9) };
}
