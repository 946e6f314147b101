/** Shorter values are no secrets: hiding them would take words out of every message. */
const SHORTEST = 6;
/** Values kept. A host that makes up secrets without end must not fill the memory. */
const MOST = 10_000;

/** Values that must not be shown on this thread, in the order they were last given. */
const known = new Set<string>();

/**
 * From now on these values are hidden in every error that this thread tells of, also as they stand in a URL. They stay
 * hidden when whoever they were given to is gone: a call of it may still fail.
 */
export function hideValues(values: Iterable<string>): void {
  for (const value of values) {
    for (const form of [value, encodeURIComponent(value.toWellFormed()), JSON.stringify(value).slice(1, -1)]) {
      if (form.length < SHORTEST) continue;
      known.delete(form);
      known.add(form);
    }
  }
  for (const oldest of known) {
    if (known.size <= MOST) break;
    known.delete(oldest);
  }
}

/** Longer ones first, so that one that holds another is hidden as a whole. */
export function hiddenValues(): readonly string[] {
  return [...known].sort((a, b) => b.length - a.length);
}
