/**
 * The name somebody probably meant, however it was cased: at most a third of its letters away.
 *
 * @example
 * nearestName("weahter", ["weather", "shell"]); // "weather"
 */
export function nearestName<N extends string>(name: string, known: readonly N[]): N | undefined {
  const plain = (word: string) => word.replaceAll(/[^a-z0-9]/gi, "").toLowerCase();
  const meant = plain(name.slice(0, LONGEST_NAME));
  const [best] = known
    .map((each) => ({ each, distance: distance(meant, plain(each)) }))
    .sort((a, b) => a.distance - b.distance);
  return best !== undefined && best.distance <= best.each.length / 3 ? best.each : undefined;
}

/** What is told with a name that nobody knows: the one that was probably meant, or all there are. */
export function knownInstead(name: string, known: readonly string[]): string {
  const near = nearestName(name, known);
  if (near !== undefined) return `Did you mean ${near}?`;
  return known.length === 0 ? "There are none." : `There are: ${known.slice(0, MOST_NAMED).join(", ")}.`;
}

const MOST_NAMED = 24;

const LONGEST_NAME = 100;

/** Letters to add, drop, change or swap with the next one, by Damerau and Levenshtein. */
function distance(a: string, b: string): number {
  let before: number[] = [];
  let row = Array.from({ length: b.length + 1 }, (_, n) => n);
  for (let i = 1; i <= a.length; i++) {
    const next = [i];
    for (let j = 1; j <= b.length; j++) {
      const changed = (row[j - 1] as number) + (a[i - 1] === b[j - 1] ? 0 : 1);
      const isSwapped = i > 1 && j > 1 && a[i - 1] === b[j - 2] && a[i - 2] === b[j - 1];
      const swapped = isSwapped ? (before[j - 2] as number) + 1 : Number.POSITIVE_INFINITY;
      next.push(Math.min(changed, swapped, (row[j] as number) + 1, (next[j - 1] as number) + 1));
    }
    before = row;
    row = next;
  }
  return row[b.length] as number;
}
