import { execFile } from "node:child_process";
import { promisify } from "node:util";
import { describe, expect, test } from "vitest";
import { fixture, NODE_ARGS } from "../../support/runtime.js";

const run = promisify(execFile);

/** The types of the events that a program writes to stderr, and under which section of `NODE_DEBUG`. */
async function toldWith(debug: string) {
  const env = { ...process.env, NODE_DEBUG: debug };
  const program = fixture("programs/restarts-plugin.mjs").pathname;
  const { stderr } = await run(process.execPath, [...NODE_ARGS, program], { env });
  const lines = stderr.split("\n").filter((line) => line !== "");
  const told = lines.map((line) => /^(\S+) \d+: \d{4}-\d\d-\d\dT[\d:.]+Z (\w+) \S.* (\{.*\})$/.exec(line)?.slice(1, 4));
  return { stderr, told: told.map((line) => `${line?.[0]} ${line?.[1]}`), fields: told.map((line) => line?.[2]) };
}

describe("a plugin's thread is killed and replaced:", () => {
  test("NODE_DEBUG=troupe writes everything that happened to stderr, with its fields and no word of what was said", async () => {
    const { stderr, told, fields } = await toldWith("troupe");
    expect(told).toEqual(["TROUPE lane_opened", "TROUPE lane_lost", "TROUPE plugin_restarted", "TROUPE lane_opened"]);
    expect(JSON.parse(fields[2] ?? "")).toMatchObject({ plugin: "test.counter", restarts: 1, count: 1 });
    expect(stderr).not.toContain("secret-word");
  });

  test("NODE_DEBUG=troupe:lane writes what happened to lanes, and nothing else", async () => {
    const { told } = await toldWith("troupe:lane");
    expect(told).toEqual(["TROUPE:LANE lane_opened", "TROUPE:LANE lane_lost", "TROUPE:LANE lane_opened"]);
  });

  test("NODE_DEBUG of another module, or of an area where nothing happened, writes nothing", async () => {
    expect((await toldWith("net-of-nobody,troupe:store")).stderr).toBe("");
  });
});
