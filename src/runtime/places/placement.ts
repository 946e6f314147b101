/**
 * Rendezvous hashing: every session has one worker it belongs to, and a change in the number of workers moves only the
 * sessions that must move.
 */
export function placeSession(sessionId: string, workers: number): number {
  let best = 0;
  let bestScore = -1;
  for (let worker = 0; worker < workers; worker++) {
    const score = hash(sessionId, worker);
    if (score > bestScore) {
      best = worker;
      bestScore = score;
    }
  }
  return best;
}

/** The worker with the fewest sessions other than `not`; of equals the first. */
export function leastLoaded(loads: readonly number[], not: number): number {
  let best = -1;
  loads.forEach((load, worker) => {
    if (worker !== not && (best === -1 || load < (loads[best] as number))) best = worker;
  });
  return best === -1 ? not : best;
}

/** FNV-1a over the id, then the worker mixed in with a finaliser so that neighbours do not correlate. */
function hash(text: string, seed: number): number {
  let h = 0x811c9dc5;
  for (let i = 0; i < text.length; i++) {
    h ^= text.charCodeAt(i);
    h = Math.imul(h, 0x01000193);
  }
  h ^= Math.imul(seed + 1, 0x9e3779b1);
  h = Math.imul(h ^ (h >>> 16), 0x85ebca6b);
  h = Math.imul(h ^ (h >>> 13), 0xc2b2ae35);
  return (h ^ (h >>> 16)) >>> 0;
}
