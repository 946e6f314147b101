// What "troupe" is to the tests when TROUPE_TEST_RESIDENCY is "one"; see vitest.config.ts.
import { type Troupe, type TroupeOptions, createTroupe as troupe } from "../../dist/src/index.js";

export * from "../../dist/src/index.js";

/** No session stays in memory longer than it must, and every message brings it back; a test that needs it otherwise says so. */
export function createTroupe(options: TroupeOptions = {}): Promise<Troupe> {
  return troupe({ parkAfterMs: 0, maxResident: 1, ...options });
}
