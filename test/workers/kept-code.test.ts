import {
  chmodSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, expect, test } from "vitest";
import { loadKept } from "../../workers/kept-code.js";

let home: string;
let file: string;
let folder: string;

beforeEach(() => {
  home = mkdtempSync(join(tmpdir(), "troupe-kept-test-"));
  file = join(home, "code.cjs");
  folder = join(home, "kept");
  writeFileSync(file, CODE);
});

afterEach(() => rmSync(home, { recursive: true, force: true }));

const CODE = `exports.says = (who) => "hello " + who;
exports.where = () => new Error("here").stack;
exports.imports = (name) => module.importHere(name);
exports.names = [__filename, __dirname, typeof require("node:fs").readFileSync];
`;
interface Code {
  readonly says: (who: string) => string;
  readonly where: () => string;
  readonly imports: (name: string) => Promise<object>;
  readonly names: readonly string[];
}

/** Loads the file, uses it, and has its code kept. */
function loadAndKeep(): Code {
  const { exports, keep } = loadKept<Code>(file, folder);
  exports.says("you");
  keep();
  return exports;
}

/** Is the kept code taken? Then nothing is written in the place of what was there. `mode`: the folder's, at the start. */
function takesKept(mode = 0o700): boolean {
  chmodSync(folder, mode);
  const { keep } = loadKept<Code>(file, folder);
  chmodSync(folder, 0o700);
  const [kept = ""] = readdirSync(folder);
  rmSync(join(folder, kept), { force: true });
  keep();
  return !existsSync(join(folder, kept));
}

test("a file is loaded as require would, and its code is kept when it is asked to, whole and once", () => {
  const { exports, keep } = loadKept<Code>(file, folder);
  expect(exports.says("you")).toBe("hello you");
  expect(exports.names).toEqual([file, home, "function"]);
  expect(readdirSync(folder)).toEqual([]);
  keep();
  keep();
  expect(readdirSync(folder)).toEqual([expect.stringMatching(/^code\.cjs-[0-9a-f]+-[\d.]+-node\.\d+-\w+$/)]);
});

test("kept code is what the next start runs, with its names in stacks, and it imports", async () => {
  loadAndKeep();
  const { exports } = loadKept<Code>(file, folder);
  expect(exports.says("again")).toBe("hello again");
  expect(exports.where()).toContain(`${file}:2:`);
  expect(Object.keys(await exports.imports("node:path"))).toContain("join");
  expect(takesKept()).toBe(true);
});

test("kept code of a file that has changed since is not run", () => {
  loadAndKeep();
  writeFileSync(file, CODE.replace("hello", "adieu"));
  expect(loadAndKeep().says("you")).toBe("adieu you");
});

test("a file elsewhere with the same text has kept code of its own, whose stacks say where it is", () => {
  loadAndKeep();
  file = join(home, "moved", "code.cjs");
  mkdirSync(join(home, "moved"));
  writeFileSync(file, CODE);
  expect(loadAndKeep().where()).toContain(`${file}:2:`);
});

test("kept code that is damaged is not run, and is kept anew", () => {
  loadAndKeep();
  const place = join(folder, readdirSync(folder)[0] as string);
  const whole = readFileSync(place);
  for (const damaged of [whole.subarray(0, whole.length / 2), Buffer.alloc(0), Buffer.from(whole).fill(7, 200, 220)]) {
    writeFileSync(place, damaged);
    expect(loadAndKeep().says("you")).toBe("hello you");
    expect(readFileSync(place).length).toBe(whole.length);
  }
  expect(takesKept()).toBe(true);
});

test.runIf(process.getuid !== undefined)(
  "in a folder that others may write nothing is kept, and nothing is run",
  () => {
    loadAndKeep();
    expect(takesKept(0o722)).toBe(false);
    rmSync(join(folder, readdirSync(folder)[0] as string));
    chmodSync(folder, 0o722);
    loadAndKeep();
    expect(readdirSync(folder)).toEqual([]);
  },
);

test("where nothing can be kept a file is loaded all the same", () => {
  writeFileSync(folder, "a file, and no folder");
  expect(loadAndKeep().says("you")).toBe("hello you");
});
