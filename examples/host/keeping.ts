import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createTroupe, migrateStore, repairStore, verifyStore } from "troupe";

const folder = await mkdtemp(join(tmpdir(), "troupe-keeping-"));
const path = join(folder, "data");

const troupe = await createTroupe({ store: { path } });
for (const id of ["chat-1", "chat-2", "draft-1"]) await (await troupe.session(id)).turn("Hello");

await troupe.backup(join(folder, "backup-1")); // an empty folder, or none yet

const file = join(folder, "chat-1.troupe");
await troupe.exportSession("chat-1", { file });
const bytes = await troupe.exportSession("chat-1", { format: "json" });
console.log(JSON.parse(new TextDecoder().decode(bytes)).format);
const { sessionId } = await troupe.importSession(file, { id: "chat-1-again" });
console.log(sessionId, (await (await troupe.session(sessionId)).turn("And again")).turnIndex);

let after: string | undefined;
do {
  const { sessions, next } = await troupe.listSessions({ after, limit: 100 });
  for (const { id } of sessions) if (id.startsWith("draft-")) await troupe.deleteSession(id, { running: "cancel" });
  after = next ?? undefined;
} while (after !== undefined);
const { segments } = await troupe.prune({ graceMs: 0 }); // at once: nothing else uses this store
console.log(`${segments.removed} gone, ${segments.kept} kept`);

await troupe.close();

// Nothing to do here: the store is of this release.
await migrateStore(path, { onProgress: ({ done, total }) => console.log(`${done} of ${total}`) });

const { ok, sessions } = verifyStore(path);
for (const { sessionId, findings } of sessions)
  for (const { where, code } of findings) console.log(sessionId, where, code);
if (!ok) console.log(repairStore(path).damagedFile);
console.log(ok ? `${sessions.length} sessions, all whole` : "repaired");

await rm(folder, { recursive: true });
