import { definePlugin } from "troupe/plugin";

const ms = Number(new URL(import.meta.url).searchParams.get("ms") ?? 1);

/** Works honestly on the processor for as long as the module's address says, in every turn. */
export default definePlugin({
  id: "bench.works",
  version: "1.0.0",
  hooks: {
    beforeTurn() {
      for (const until = performance.now() + ms; performance.now() < until; );
    },
  },
});
