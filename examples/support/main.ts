import { once } from "node:events";
import type { AddressInfo } from "node:net";
import { parseArgs } from "node:util";
import { startBackend } from "./backend.js";
import { createSupportServer } from "./server.js";

const { values } = parseArgs({
  options: {
    folder: { type: "string", default: "./support-data" },
    port: { type: "string", default: "8080" },
    instructions: { type: "string", default: "You are Ada. You help the customers of a bicycle shop." },
    "pace-ms": { type: "string", default: "400" },
    questions: { type: "string", default: "1000" },
  },
});

const troupe = await startBackend({
  folder: values.folder,
  instructions: values.instructions,
  paceMs: Number(values["pace-ms"]),
  questions: Number(values.questions),
});
const server = createSupportServer(troupe).listen(Number(values.port), "127.0.0.1");
await once(server, "listening");
console.log(`http://127.0.0.1:${(server.address() as AddressInfo).port}`);

/** Turns finish or are kept for the next start; pages that watch are let go, and connect again. */
async function close(): Promise<void> {
  server.close();
  await troupe.close();
  server.closeAllConnections();
}
for (const signal of ["SIGINT", "SIGTERM"] as const) process.once(signal, () => void close());
