import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { expect, onTestFinished, test } from "vitest";
import { type Permissions, ThreadPermissions } from "../../../src/runtime/options/permissions.js";

/** What a thread of a plugin far from the granted paths is let do with files beneath `folder`. */
function grantedBeneath(folder: string, permissions: Permissions): Record<"read" | "write", string[]> {
  const home = mkdtempSync(join(tmpdir(), "troupe-test-"));
  onTestFinished(() => rmSync(home, { recursive: true, force: true }));
  writeFileSync(join(home, "package.json"), "{}");
  mkdirSync(join(home, "src"));
  const module = pathToFileURL(join(home, "src", "plugin.mjs")).href;
  const { execArgv: flags } = new ThreadPermissions().rights({ name: "a plugin", modules: [module], permissions });
  const paths = (flag: string) =>
    flags
      .filter((each) => each.startsWith(`${flag}=${folder}`))
      .map((each) => each.slice(flag.length + 1))
      .sort();
  return { read: paths("--allow-fs-read"), write: paths("--allow-fs-write") };
}

test("a grant to read a path is none to write it, and a grant to write it is none to read it", () => {
  const { read, write } = grantedBeneath("/granted/", { read: ["/granted/notes"], write: ["/granted/drafts"] });
  expect([read, write]).toEqual([
    ["/granted/notes", "/granted/notes/*"],
    ["/granted/drafts", "/granted/drafts/*"],
  ]);
});

test("a granted path that is not there yet may become a file or a folder, and one that is there is what it is", () => {
  const folder = mkdtempSync(join(tmpdir(), "troupe-test-"));
  onTestFinished(() => rmSync(folder, { recursive: true, force: true }));
  const later = join(folder, "later");
  expect(grantedBeneath(folder, { write: [later] }).write).toEqual([later, join(later, "*")]);
  mkdirSync(later);
  expect(grantedBeneath(folder, { write: [later] }).write).toEqual([later]);
});

test("of granted paths that lie in each other only the outermost are named: Node 20 ends the process otherwise", () => {
  const paths = ["/granted/a/b", "/granted/a", "/granted/a/b/c", "/granted/d"];
  expect(grantedBeneath("/granted/", { read: paths, write: paths })).toEqual({
    read: ["/granted/a", "/granted/a/*", "/granted/d", "/granted/d/*"],
    write: ["/granted/a", "/granted/a/*", "/granted/d", "/granted/d/*"],
  });
});

test("a path is folded into one that contains it, not into one whose name it begins with", () => {
  const paths = ["/granted/a", "/granted/ab", "/granted/a.txt", "/granted/a.txtra", "/granted/c*", "/granted/cd/e"];
  const kept = ["/granted/a", "/granted/a.txt", "/granted/a.txtra", "/granted/ab", "/granted/c*"];
  const { read } = grantedBeneath("/granted/", { read: paths });
  expect(read.filter((path) => !path.endsWith("/*"))).toEqual(kept);
});

test("a path that a later one with a star contains is folded into that one", () => {
  const { read } = grantedBeneath("/granted/", { read: ["/granted/f", "/granted/f*"] });
  expect(read).toEqual(["/granted/f*"]);
});

test.each(["Bun", "Deno"])("on %s a plugin starts only when it is trusted or has every permission", (name) => {
  const permissions = new ThreadPermissions({ engine: { name, flags: undefined } });
  const guest = { name: "the plugin acme", modules: [import.meta.url] };
  expect(() => permissions.rights({ ...guest, permissions: {} })).toThrow(
    expect.objectContaining({ code: "isolation_unenforceable", message: expect.stringContaining(name) }),
  );
  const unlimited = { execArgv: [], env: {}, denials: undefined };
  expect(permissions.rights({ ...guest, permissions: {}, trusted: true })).toEqual(unlimited);
  expect(permissions.rights({ ...guest, permissions: "all" })).toEqual(unlimited);
});

test("a module in the folder of the store is refused: no plugin may read there", () => {
  const storePath = join(tmpdir(), "no-such-store");
  const modules = [pathToFileURL(join(storePath, "plugin.mjs")).href];
  expect(() => new ThreadPermissions({ storePath }).rights({ name: "acme", modules, permissions: {} })).toThrow(
    expect.objectContaining({ code: "invalid_options" }),
  );
});

test("a thread looks whether it is denied the environment files and the store, but for what was granted", () => {
  const folder = mkdtempSync(join(tmpdir(), "troupe-test-"));
  onTestFinished(() => rmSync(folder, { recursive: true, force: true }));
  writeFileSync(join(folder, "package.json"), "{}");
  const modules = [pathToFileURL(join(folder, "plugin.mjs")).href];
  const permissions = new ThreadPermissions({ storePath: join(folder, "store") });
  const denied = (read: string[]) =>
    permissions.rights({ name: "acme", modules, permissions: { read } }).denials?.paths;
  expect(denied([])).toEqual([join(process.cwd(), ".env"), join(folder, ".env"), join(folder, "store", "data.mdb")]);
  expect(denied([folder])).toEqual([join(process.cwd(), ".env")]);
});
