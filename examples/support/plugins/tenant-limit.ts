import { abortTurn, definePlugin } from "troupe/plugin";
import { z } from "zod";

/**
 * Bounds how many questions a tenant asks, over all its chats. The count is shared state: every thread and every process
 * on the store sees the same, and it outlives them all. The host sets it back (`troupe.shared.delete`).
 */
export default definePlugin({
  id: "support.tenant-limit",
  version: "1.0.0",
  options: z.object({ questions: z.number().int().min(1) }),
  shared: {
    // Chats are named `<tenant>/<chat>`, and belong to that tenant.
    key: ({ tenant }) => tenant ?? "nobody",
    state: () => ({ asked: 0 }),
  },
  hooks: {
    async beforeTurn({ shared, options }) {
      // May run again when another thread was quicker, so it counts and does nothing else.
      const { asked } = await shared.update((state) => {
        state.asked++;
      });
      if (asked > options.questions) return abortTurn("tenant_limit", "All questions of this month are used up.");
    },
  },
});
