import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, describe, expect, test } from "vitest";
import { fixture } from "../../support/runtime.js";
import { expectWarned, Pipe, Row, reasonOf, warnings } from "../../support/supervised.js";
import { cellsOf, type Deed, PHASES, type Reason, takesLong } from "../../support/supervisor-matrix.js";

const ID = "test.supervised";
const heard = warnings();
const restarts = async (troupe: Awaited<ReturnType<Row["for"]>>["troupe"]) =>
  (await troupe.stats()).workers[0]?.restarts ?? 0;

const folders: string[] = [];
afterAll(() => Promise.all(folders.map((folder) => rm(folder, { recursive: true, force: true }))));

const pipe = new Pipe();

/** The plugin does its deed once: in a turn that is taken up it does not do it again. */
async function options(deed: Deed, journaled: boolean) {
  const folder = await mkdtemp(join(tmpdir(), "troupe-test-"));
  folders.push(folder);
  return {
    sessionBlockedMs: takesLong(deed) ? 60_000 : 500,
    sessionHeapMb: 64,
    plugins: [
      {
        module: `${fixture("supervisor/plugin.mjs")}?pipe=${encodeURIComponent(pipe.path)}`,
        tier: "inline" as const,
        options: { marker: join(folder, "done") },
        optionalInChildren: true,
      },
    ],
    ...(journaled && { store: { path: join(folder, "store") } }),
  };
}

/**
 * A turn that its worker's end took with it goes on where turns are journaled. A capture that fails once fails at the
 * turn's beginning there, where the journal keeps states too, and the one at its end is whole.
 */
function takenUp({ turn, ...cell }: Reason): Reason {
  const unharmed = turn.startsWith("refused: worker_lost") || turn.startsWith("finished, issue: plugin_capture_failed");
  return { ...cell, turn: unharmed ? "finished" : turn };
}

describe.each(PHASES)("on a session worker, %s", (phase) => {
  describe("in memory", () => {
    const row = new Row({ start: (deed) => options(deed, false), withoutPlugins: [ID], apart: phase === "idle" });

    test.each(cellsOf("session worker", phase))(
      "an inline plugin that does this: %s, has its own typed reason; its neighbours' turns end with their worker at most, and the next succeed",
      async (deed, cell) => {
        const { troupe, turns } = await row.for(deed);
        const before = await restarts(troupe);
        const bad = await troupe.session(phase === "starting" ? `${deed} starting` : `does ${deed}`);
        const beside = turns();
        const turn = reasonOf(row.turn(bad, `${deed} ${phase}`));
        await expectWarned(heard, cell);
        // A thread in a native call cannot be ended, and its successor begins when it has.
        pipe.release();
        expect(await turn).toBe(cell.turn);
        const lost = cell.warned?.startsWith("worker_lost") === true;
        const allowed = ["finished", ...(lost ? [`refused: ${cell.warned}`] : [])];
        for (const each of await Promise.all(beside)) expect(allowed).toContain(each);
        expect(new Set(await Promise.all(turns()))).toEqual(new Set(["finished"]));
        const next = phase === "starting" ? await troupe.session(`after ${deed}`) : bad;
        expect(await reasonOf(row.turn(next, "hello"))).toBe("finished");
        expect(await restarts(troupe)).toBe(before + (lost ? 1 : 0));
      },
    );
  });

  describe("with a journal", () => {
    const row = new Row({ start: (deed) => options(deed, true), withoutPlugins: [ID], apart: phase === "idle" });

    test.each(cellsOf("session worker", phase).map(([deed, cell]) => [deed, takenUp(cell)] as const))(
      "an inline plugin that does this once: %s, costs nobody a turn: what its worker's end interrupts is taken up",
      async (deed, cell) => {
        const { troupe, turns } = await row.for(deed);
        const bad = await troupe.session(phase === "starting" ? `${deed} starting` : `does ${deed}`);
        const beside = turns();
        const turn = reasonOf(row.turn(bad, `${deed} ${phase}`));
        await expectWarned(heard, cell);
        // A thread in a native call cannot be ended, and its successor begins when it has.
        pipe.release();
        expect(await turn).toBe(cell.turn);
        expect(new Set(await Promise.all([...beside, ...turns()]))).toEqual(new Set(["finished"]));
      },
    );
  });
});
