import type { PluginEntry } from "troupe";
import { describe, expect, test } from "vitest";
import { fixture } from "../../support/runtime.js";
import { expectWarned, Pipe, Row, reasonOf, warnings } from "../../support/supervised.js";
import { cellsOf, type Deed, PHASES, takesLong } from "../../support/supervisor-matrix.js";

const MODULE = fixture("supervisor/plugin.mjs");
const pipe = new Pipe();
const entry = (id: string, deed: Deed, more: Partial<PluginEntry> = {}): PluginEntry => ({
  module: `${MODULE}?id=${id}&ports&pipe=${encodeURIComponent(pipe.path)}`,
  permissions: { read: [pipe.folder] },
  heapMb: 32,
  externalMb: 48,
  blockedMs: takesLong(deed) ? 60_000 : 100,
  optionalInChildren: true,
  ...more,
});
const PLUGINS = {
  "plugin host own": (deed: Deed) => [entry("test.one", deed)],
  "plugin host shared": (deed: Deed) =>
    ["test.one", "test.two&neighbour"].map((id) => entry(id, deed, { group: "ours" })),
} as const;

const heard = warnings();

describe.each(["plugin host own", "plugin host shared"] as const)("on a %s", (thread) => {
  describe.each(PHASES)("%s", (phase) => {
    const row = new Row({
      start: async (deed) => ({ plugins: PLUGINS[thread](deed) }),
      withoutPlugins: PLUGINS[thread]("exit").map(({ module }) => new URL(module).searchParams.get("id") as string),
    });

    test.each(cellsOf(thread, phase))(
      "a plugin that does this: %s, has its own typed reason; its neighbours' turns succeed, and so does a next turn",
      async (deed, cell) => {
        const { troupe, turns } = await row.for(deed);
        const bad = await troupe.session(phase === "starting" ? `${deed} starting` : `does ${deed}`);
        const beside = turns();
        expect(await reasonOf(row.turn(bad, `${deed} ${phase}`))).toBe(cell.turn);
        const went = await Promise.all(beside);
        await expectWarned(heard, cell, async () => went.push(...(await Promise.all(turns()))));
        expect(new Set([...went, ...(await Promise.all(turns()))])).toEqual(new Set(["finished"]));
        pipe.release();
        // One whose state cannot be made never has a turn: another session has it.
        const next = phase === "starting" ? await troupe.session(`after ${deed}`) : bad;
        expect(await reasonOf(row.turn(next, "hello"))).toBe("finished");
        // Threads that end while no call holds them are held against the plugin; here they are many.
        if (phase === "idle") await troupe.restartPlugin("test.one");
      },
    );
  });
});
