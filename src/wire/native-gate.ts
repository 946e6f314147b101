/** A thread is inside native code that does not survive its end. */
const INSIDE = 0;
/** It must not go there any more: it is about to be ended. */
const SHUT = 1;

export function newNativeGate(): Int32Array {
  return new Int32Array(new SharedArrayBuffer(8));
}

/**
 * Runs native code in a thread that others may end. Ended inside of it, an addon written with node-addon-api cannot throw
 * what it then finds wrong, and aborts the whole process instead. Code that runs behind a gate is not ended before it
 * has returned.
 */
export function behindGate<T>(gate: Int32Array, run: () => T): T {
  Atomics.store(gate, INSIDE, 1);
  if (Atomics.load(gate, SHUT) === 1) {
    Atomics.store(gate, INSIDE, 0);
    // Whoever shut the gate ends this thread now: it goes no further.
    Atomics.wait(gate, SHUT, 1);
  }
  try {
    return run();
  } finally {
    Atomics.store(gate, INSIDE, 0);
  }
}

/** From now on the thread enters no native code. Answers whether it is still inside. */
export function shutGate(gate: Int32Array): boolean {
  Atomics.store(gate, SHUT, 1);
  return isInside(gate);
}

export function isInside(gate: Int32Array): boolean {
  return Atomics.load(gate, INSIDE) === 1;
}
