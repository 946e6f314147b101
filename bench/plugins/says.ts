import { definePlugin } from "troupe/plugin";
import { z } from "zod";

const id = new URL(import.meta.url).searchParams.get("id") ?? "bench.says";

/** Contributes a text to the prompt; a numbered one is another text in every turn. */
export default definePlugin({
  id,
  version: "1.0.0",
  options: z.object({
    slot: z.enum(["guidance", "runtime_context"]),
    content: z.string(),
    numbered: z.boolean().default(false),
  }),
  hooks: {
    promptContributor: ({ turnId, options: { slot, content, numbered } }) => ({
      slot,
      content: numbered ? `${content} ${turnId}` : content,
    }),
  },
});
