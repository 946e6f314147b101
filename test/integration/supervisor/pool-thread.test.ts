import { existsSync } from "node:fs";
import { createTroupe } from "troupe";
import { describe, expect, test } from "vitest";
import { fixture, refusalOf, until } from "../../support/runtime.js";
import { expectWarned, Pipe, Row, reasonOf, warnings } from "../../support/supervised.js";
import { cellsOf, type Deed, takesLong } from "../../support/supervisor-matrix.js";

const pipe = new Pipe();
const MODULE = `${fixture("supervisor/tool.mjs")}?pipe=${encodeURIComponent(pipe.path)}`;
const heard = warnings();

/** One thread for all calls, so that neighbours have the very one that something was done to. */
const options = (deed: Deed) => ({
  toolThreads: 1,
  tools: {
    deed: {
      module: MODULE,
      permissions: { read: [pipe.folder], write: [pipe.folder] },
      // Filling memory takes its time.
      ...(takesLong(deed) && { timeoutMs: 60_000 }),
    },
  },
  model: fixture("models/obeys.mjs"),
});

describe("on a pool thread, starting", () => {
  test.each(cellsOf("pool thread", "starting"))(
    "a tool whose module does this: %s, keeps the runtime from starting with a typed reason, if it does, and a runtime starts",
    async (deed, { turn }) => {
      const module = `${MODULE}&deed=${encodeURIComponent(deed)}`;
      // One that never loads need not be waited for: the others have as long as they take.
      const never = turn.endsWith("tool_load_timeout") && { loadMs: 500 };
      const tools = { deed: { module, permissions: { read: [pipe.folder] }, ...never } };
      const starting = createTroupe({ sessionWorkers: 1, tools, model: fixture("models/obeys.mjs") });
      if (turn !== "finished") {
        const error = await refusalOf(starting);
        expect(`no runtime: ${error.code}`).toBe(turn);
        pipe.release();
      }
      const troupe =
        turn === "finished" ? await starting : await createTroupe({ sessionWorkers: 1, ...options("exit") });
      expect(await reasonOf((await troupe.session("s")).turn("say hello"))).toBe("finished");
      await troupe.close();
    },
  );
});

describe.each(["idle", "in a turn"] as const)("on a pool thread, %s", (phase) => {
  const row = new Row({
    start: async (deed) => options(deed),
    turnOf: (text) => `call deed {"text":"${text}"}\nsay done`,
  });

  test.each(cellsOf("pool thread", phase))(
    "a tool that does this: %s, has its own typed reason; its neighbours' calls succeed, and so does a next call",
    async (deed, cell) => {
      const { troupe, turns } = await row.for(deed);
      const bad = await troupe.session(`does ${deed}`);
      expect(await reasonOf(row.turn(bad, `${deed} ${phase}`))).toBe(cell.turn);
      if (phase === "idle") await until("the thread is held or gone", () => existsSync(`${pipe.path}-${deed}`));
      expect(new Set(await Promise.all(turns()))).toEqual(new Set(["finished"]));
      pipe.release();
      expect(await reasonOf(row.turn(bad, "hello"))).toBe("finished");
      await expectWarned(heard, cell);
    },
  );
});
