import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import type { Permissions } from "troupe";
import { expect, onTestFinished, test } from "vitest";
import { type Attempt, addPlugin, attempt, makeApp } from "../../support/apps.js";
import { plugin, refusalOf, startTroupe } from "../../support/runtime.js";

const DENIED = "ERR_ACCESS_DENIED";

/** What a plugin far from the paths in question finds it may do. */
async function may(permissions: Permissions | "all", attempts: readonly Attempt[]): Promise<unknown[]> {
  return attempt({ plugins: [{ module: addPlugin(await makeApp()), permissions }] }, attempts);
}

test("a grant to read is none to write, and a grant to write is none to read", async () => {
  const place = await makeApp({ "read/a.txt": "a", "write/b.txt": "b", "c.txt": "c" });
  const [toRead, toWrite, neither] = [join(place, "read"), join(place, "write"), join(place, "c.txt")];
  const outcome = await may({ read: [toRead], write: [toWrite] }, [
    ["read", join(toRead, "a.txt")],
    ["write", join(toRead, "a.txt")],
    ["write", join(toWrite, "b.txt")],
    ["read", join(toWrite, "b.txt")],
    ["write", join(toWrite, "new.txt")],
    ["read", neither],
    ["write", neither],
  ]);
  expect(outcome).toEqual(["a", DENIED, "written", DENIED, "written", DENIED, DENIED]);
});

test("of two granted files whose names begin alike both are readable", async () => {
  const place = await makeApp({ "a.txt": "short", "a.txtra": "long", "a.txtr": "between" });
  const paths = ["a.txt", "a.txtra"].map((name) => join(place, name));
  expect(
    await may({ read: paths }, [
      ["read", join(place, "a.txt")],
      ["read", join(place, "a.txtra")],
      ["read", join(place, "a.txtr")],
    ]),
  ).toEqual(["short", "long", DENIED]);
});

test("of granted paths of which one contains the other both are readable", async () => {
  const place = await makeApp({ "in/one.txt": "one", "in/deep/two.txt": "two", "other.txt": "other" });
  const read = [join(place, "in/deep"), join(place, "in"), join(place, "in/one.txt"), join(place, "oth*")];
  expect(
    await may({ read }, [
      ["read", join(place, "in/one.txt")],
      ["read", join(place, "in/deep/two.txt")],
      ["read", join(place, "other.txt")],
      ["read", join(place, "package.json")],
    ]),
  ).toEqual(["one", "two", "other", DENIED]);
});

test("a path with a comma, a space or a # in it can be granted", async () => {
  const place = await makeApp({ "a, b#c%20d/e.txt": "e" });
  expect(await may({ read: [join(place, "a, b#c%20d")] }, [["read", join(place, "a, b#c%20d/e.txt")]])).toEqual(["e"]);
});

test("the working directory is not readable for being it, and is when it is granted", async () => {
  const file = join(process.cwd(), "LICENSE");
  expect(await may({}, [["read", file]])).toEqual([DENIED]);
  expect(await may({ read: ["LICENSE"] }, [["read", file]])).toEqual([expect.stringContaining("MIT")]);
});

/** No library, which is found out only by who may load one. */
const addon = fileURLToPath(import.meta.url);
const KINDS: readonly (readonly [name: keyof Permissions, act: Attempt, refusal: string, done: string])[] = [
  ["childProcess", ["process"], DENIED, "run"],
  ["worker", ["thread"], DENIED, "started"],
  ["addons", ["addon", addon], "ERR_DLOPEN_DISABLED", "ERR_DLOPEN_FAILED"],
];
test.each(KINDS)("without %s a plugin is refused it, and with it it is not", async (name, act, refusal, done) => {
  const others = KINDS.filter(([other]) => other !== name).map(([other]) => [other, true]);
  expect(await may(Object.fromEntries(others), [act])).toEqual([refusal]);
  expect(await may({ [name]: true }, [act])).toEqual([done]);
});

test("a plugin has the environment variables it was granted by name, and no other", async () => {
  process.env.TROUPE_TEST_GRANTED = "1";
  process.env.TROUPE_TEST_KEPT = "1";
  onTestFinished(() => {
    delete process.env.TROUPE_TEST_GRANTED;
    delete process.env.TROUPE_TEST_KEPT;
  });
  expect(await may({ env: ["TROUPE_TEST_GRANTED", "TROUPE_TEST_ABSENT"] }, [["environment"]])).toEqual([
    ["TROUPE_TEST_GRANTED"],
  ]);
  expect(await may({}, [["environment"]])).toEqual([[]]);
});

test.skipIf(process.platform !== "linux")(
  "of what the system says of processes a plugin reads its own thread's numbers, by one path; it reads no environment and lists no threads",
  async () => {
    const read = ["thread-self/status", "thread-self/environ", "self/environ", "self/stat", "self/maps"];
    const listed = ["", "self", "self/task", "self/fd", "thread-self", "thread-self/fd"];
    const found = await may({}, [
      ["read", "/proc/thread-self/stat"],
      ...read.map((path) => ["read", `/proc/${path}`] as const),
      ...listed.map((path) => ["list", `/proc/${path}`] as const),
    ]);
    expect(found).toEqual([expect.stringMatching(/^\d+ \(/), ...[...read, ...listed].map(() => DENIED)]);
  },
);

test("with every permission a plugin is denied no file", async () => {
  const place = await makeApp({ ".env": "SECRET=1" });
  expect(await may("all", [["read", join(place, ".env")]])).toEqual(["SECRET=1"]);
});

async function echoServer(): Promise<string> {
  const server = createServer((_request, response) => response.end("reached"));
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  onTestFinished(() => new Promise((resolve) => server.close(() => resolve())));
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
}

test("the network is open to a plugin unless it is taken from it", async () => {
  const url = await echoServer();
  expect(await may({}, [["fetch", url]])).toEqual(["reached"]);
});

/** Since Node 25. */
const canTakeTheNetwork = process.allowedNodeEnvironmentFlags.has("--allow-net");

test("network: false holds where Node can enforce it, and refuses the start where it cannot", async () => {
  const url = await echoServer();
  const outcome = await may({ network: false }, [["fetch", url]]).catch(({ code }) => code);
  expect(outcome).toEqual(canTakeTheNetwork ? [DENIED] : "isolation_unenforceable");
});

test("a trusted plugin starts also where its permissions cannot be enforced, and what can be still is", async () => {
  const place = await makeApp({ "notes.txt": "notes" });
  const module = addPlugin(await makeApp());
  const plugins = [{ module, isolation: "trusted", permissions: { network: false } } as const];
  expect(await attempt({ plugins }, [["read", join(place, "notes.txt")]])).toEqual([DENIED]);
});

test.each([
  ["everything", 'plugins[0].permissions must be "all" or an object such as { read: ["./data"] }.'],
  [{ reed: [] }, 'plugins[0].permissions has no option "reed". Did you mean "read"?'],
  [{ read: "./data" }, "plugins[0].permissions.read must be a list of strings."],
  [{ worker: "yes" }, "plugins[0].permissions.worker must be true or false."],
])("permissions that mean nothing are refused: %j", async (permissions, message) => {
  const plugins = [{ module: plugin("counter"), permissions: permissions as never }];
  expect(await refusalOf(startTroupe({ plugins }))).toMatchObject({ code: "invalid_options", message });
});
