/**
 * The dependency rule of DESIGN §2: async ← kernel ← plugin ← (tools, model, store, wire, trace) ← session ← runtime ← index.
 * Rooms are entered by their door (index.ts) only.
 */
const room = (...names) => `^src/(${names.join("|")})/`;
const only = (name, from, allowed) => ({
  name,
  severity: "error",
  from: { path: from },
  to: { path: "^(src|workers)/", pathNot: [from, ...allowed] },
});

module.exports = {
  forbidden: [
    { name: "no-cycles", severity: "error", from: {}, to: { circular: true } },
    only("async-imports-no-room", room("async"), []),
    only("kernel-imports-types-of-async", room("kernel"), [room("async")]),
    {
      name: "kernel-knows-time-by-type-only",
      severity: "error",
      from: { path: room("kernel") },
      to: { path: room("async"), dependencyTypesNot: ["type-only"] },
    },
    only("plugin-imports-below", room("plugin"), [room("async", "kernel")]),
    only("wire-imports-below", room("wire"), [room("async", "kernel", "plugin")]),
    only("middle-rooms-import-below-and-wire", "^src/(?:tools|model|store|trace)/", [
      room("async", "kernel", "plugin", "wire"),
    ]),
    only("session-imports-below", room("session"), [
      room("async", "kernel", "plugin", "tools", "model", "store", "wire", "trace"),
    ]),
    only("runtime-imports-below", room("runtime"), [
      room("async", "kernel", "plugin", "tools", "model", "store", "wire", "trace", "session"),
    ]),
    {
      name: "rooms-have-one-door",
      comment: "Import another room from its index.ts.",
      severity: "error",
      from: { path: "^src/([^/]+)/" },
      to: { path: "^src/[^/]+/.+", pathNot: ["^src/$1/", "^src/[^/]+/index\\.ts$"] },
    },
    {
      name: "kernel-is-pure",
      comment: "No I/O, clock, randomness or threads in the kernel.",
      severity: "error",
      from: { path: room("kernel") },
      to: { dependencyTypes: ["core", "npm"] },
    },
    {
      name: "workers-wire-only",
      comment:
        "An entry wires a port to a room's door or to its thread's side, so that a thread loads only what it needs.",
      severity: "error",
      from: { path: "^workers/" },
      to: { path: "^src/.+", pathNot: "^src/[^/]+/(index|[a-z]+-thread)\\.ts$" },
    },
    {
      name: "nothing-unresolved",
      severity: "error",
      from: {},
      to: { couldNotResolve: true, pathNot: "^comlink/dist" },
    },
  ],
  options: {
    tsConfig: { fileName: "tsconfig.json" },
    tsPreCompilationDeps: true,
    doNotFollow: { path: "node_modules" },
    enhancedResolveOptions: { conditionNames: ["import", "node", "default", "types"] },
  },
};
