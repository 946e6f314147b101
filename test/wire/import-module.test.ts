import { fileURLToPath } from "node:url";
import { describe, expect, it } from "vitest";
// As built: in the test runner's own transformation `import()` is not Node's.
import { importDefault } from "../../dist/src/wire/index.js";

const url = (name: string) => new URL(`./fixtures/${name}`, import.meta.url).href;

describe("importDefault", () => {
  it("gives the default export", async () => {
    expect(await importDefault(url("module-default.mjs"), "plugin")).toEqual({ id: "fixture" });
  });

  it.each(["plugin", "tool", "model"] as const)("says that the module of a %s does not exist", async (what) => {
    const module = url("nowhere.mjs");
    await expect(importDefault(module, what)).rejects.toMatchObject({
      name: "TroupeError",
      code: `${what}_module_not_found`,
      message: `There is no ${what} module at ${module}. Check the URL; a build or a bundler may have put the file elsewhere.`,
      details: { module },
    });
  });

  it("asks for a URL when it gets a bare name", async () => {
    await expect(importDefault("troupe-no-such-package", "plugin")).rejects.toMatchObject({
      code: "plugin_module_invalid",
      message: expect.stringContaining('Write new URL("./plugin.js", import.meta.url)'),
    });
  });

  it("blames the module for an import of its own that is missing", async () => {
    const module = url("module-missing-import.mjs");
    await expect(importDefault(module, "plugin")).rejects.toMatchObject({
      code: "plugin_module_invalid",
      message: expect.stringContaining(fileURLToPath(url("there-is-no-such-file.mjs"))),
      details: { module },
    });
  });

  it("says that a module has no default export", async () => {
    const module = url("module-no-default.mjs");
    await expect(importDefault(module, "tool")).rejects.toMatchObject({
      code: "tool_module_invalid",
      message: `The tool module ${module} cannot be used: it has no default export. Export the tool as default.`,
    });
  });

  it("keeps what a module threw while it was loaded as the cause", async () => {
    const module = url("module-throws.mjs");
    await expect(importDefault(module, "model")).rejects.toMatchObject({
      code: "model_module_invalid",
      message: `The model module ${module} cannot be used: importing it failed at ${module}:1: not today.`,
      cause: expect.objectContaining({ message: "not today" }),
    });
  });

  it.each(["model-syntax-error.mjs", "imports-syntax-error.mjs"])(
    "says in which file and line a module, or one it imports, does not parse (%s)",
    async (name) => {
      const module = new URL(`../fixtures/broken/${name}`, import.meta.url).href;
      const broken = new URL("../fixtures/broken/model-syntax-error.mjs", import.meta.url).href;
      await expect(importDefault(module, "model")).rejects.toMatchObject({
        code: "model_module_invalid",
        message: expect.stringContaining(
          `The model module ${module} cannot be used: importing it failed at ${broken}:2: Unexpected`,
        ),
        cause: expect.objectContaining({ name: "SyntaxError" }),
      });
    },
  );

  it("says that a folder or a web address is no module", async () => {
    for (const module of [url(""), "https://example.com/plugin.js"]) {
      await expect(importDefault(module, "plugin")).rejects.toMatchObject({
        code: "plugin_module_invalid",
        details: { module },
      });
    }
  });
});
