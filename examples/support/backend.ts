import { mkdir, writeFile } from "node:fs/promises";
import { join, resolve } from "node:path";
import { createTroupe, defineTool, type Troupe } from "troupe";
import { z } from "zod";

export interface BackendOptions {
  /** Where everything is kept. */
  readonly folder: string;
  readonly instructions: string;
  /** Between the pieces of the stand-in's longest answer. */
  readonly paceMs: number;
  /** How many questions a tenant may ask. */
  readonly questions: number;
}

/** Refunds above this need somebody's yes. */
const ALONE = 50;

/** The runtime of a support desk: a model, two tools and three plugins, on a store that outlives the process. */
export async function startBackend({ folder, instructions, paceMs, questions }: BackendOptions): Promise<Troupe> {
  const audit = resolve(folder, "audit");
  const paid = resolve(folder, "paid");
  // What is granted to a plugin must be there when it starts.
  for (const path of [audit, paid]) await mkdir(path, { recursive: true });
  return createTroupe({
    // One line for a real model: a module that default-exports any AI SDK language model.
    // model: new URL("./real-model.js", import.meta.url),
    model: { module: new URL("./model.js", import.meta.url), options: { paceMs } },
    instructions,
    store: { path: join(folder, "store") },
    plugins: [
      { module: new URL("./plugins/redaction.js", import.meta.url) },
      { module: new URL("./plugins/tenant-limit.js", import.meta.url), options: { questions } },
      {
        module: new URL("./plugins/audit.js", import.meta.url),
        options: { file: join(audit, "audit.jsonl") },
        permissions: { write: [audit] },
      },
    ],
    tools: {
      order: defineTool({
        description: "What became of an order.",
        inputSchema: z.object({ order: z.string() }),
        execute: ({ order }) => `Order ${order} is on its way. It was paid with card 4000 0566 5566 5556`,
      }),
      refund: defineTool({
        description: "Pays money back for an order.",
        inputSchema: z.object({ order: z.string(), amount: z.number().positive() }),
        approval: ({ order, amount }) => amount > ALONE && { reason: `Pay ${amount} back for order ${order}?` },
        async execute({ order, amount }, { sessionId, turnId, callId }) {
          // A body runs at least once: what it does outside has a key, and is done once for it.
          const key = encodeURIComponent([sessionId, turnId, callId].join("/"));
          await writeFile(join(paid, key), `${order} ${amount}\n`);
          return `${amount} paid back for order ${order}.`;
        },
      }),
    },
  });
}
