/** `npm start` passes on the Ctrl-C that the terminal has already delivered: one key press arrives twice. */
const SAME_KEY_PRESS_MS = 300;

/**
 * Aborts at the first Ctrl-C (or SIGTERM), so that the program can close. The second one ends it at once, after
 * `lastWish`.
 */
export function untilInterrupted(lastWish: () => void): AbortSignal {
  const controller = new AbortController();
  let firstAt: number | undefined;
  const onSignal = (signal: NodeJS.Signals) => {
    firstAt ??= performance.now();
    controller.abort();
    if (performance.now() - firstAt < SAME_KEY_PRESS_MS) return;
    lastWish();
    process.off(signal, onSignal);
    // Not `process.exit`: that would wait for threads that are in the middle of something.
    process.kill(process.pid, signal);
  };
  process.on("SIGINT", onSignal);
  process.on("SIGTERM", onSignal);
  return controller.signal;
}
