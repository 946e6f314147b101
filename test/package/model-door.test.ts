import { execFile } from "node:child_process";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import * as door from "troupe/model";
import { expect, test } from "vitest";

const run = promisify(execFile);
const root = fileURLToPath(new URL("../..", import.meta.url));

test("troupe/model has what modules of models use, and nothing else", () => {
  expect(Object.keys(door).sort()).toEqual(["createHttpFetch", "httpFetch"]);
});

/** The files of the package that a program has loaded. */
async function loaded(program: string): Promise<string> {
  const env = { ...process.env, NODE_DEBUG: "esm" };
  const { stderr } = await run(process.execPath, ["--input-type=module", "-e", program], {
    cwd: root,
    env,
    maxBuffer: 2 ** 26,
  });
  return stderr;
}

test("what troupe/model brings is loaded by nobody who does not import it", async () => {
  expect(await loaded('import "troupe/model"')).toContain("dist/lib/model.js");
  expect(await loaded('import "troupe"')).not.toContain("dist/lib/model.js");
});
