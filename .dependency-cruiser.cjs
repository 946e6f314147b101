/**
 * The dependency rule of DESIGN §2, for rooms and for the sub-rooms inside them (HOUSE §3). Both lists are in order: a
 * room imports only rooms before it, a sub-room only sub-rooms before it, and each is entered by its door (index.ts).
 * The rules are generated from the lists, so a new room or sub-room is one word here.
 */
const ROOMS = [
  ["async"],
  ["kernel"],
  ["plugin"],
  ["wire"],
  ["tools", "model", "store", "trace", "processes"],
  ["session"],
  ["runtime"],
];

/** Files beside the sub-rooms of a room may import all of them; none of them imports such a file, but in the kernel. */
const SUB_ROOMS = {
  kernel: [
    "codes",
    "usage",
    "history",
    "tools",
    "model",
    "prompt",
    "session",
    "directives",
    "turn",
    "schedule",
    "trigger",
    "process",
    "writes",
    "task",
    "monitor",
  ],
  session: [
    "calls",
    "plugin-thread",
    "plugins",
    "stored",
    "journal",
    "protocol",
    "state",
    "host-services",
    "turn",
    "life",
    "worker",
  ],
  runtime: [
    "options",
    "watch",
    "threads",
    "places",
    "turns",
    "sessions",
    "observe",
    "upkeep",
    "schedules",
    "triggers",
    "tasks",
    "outside",
    "host",
  ],
  store: ["records", "folder", "transfer", "memory", "lmdb", "upkeep", "thread"],
  tools: ["tool-code", "jobs", "dispatch", "catalog", "pool"],
  wire: ["confine"],
  plugin: ["schema", "host", "tool", "kinds", "definition"],
  model: ["transport", "boundary", "calling", "ai-sdk", "scripted"],
};

const anyOf = (names) => `(?:${names.join("|")})`;
const room = (...names) => `^src/${anyOf(names)}/`;
const subRoom = (name, ...subs) => `^src/${name}/${anyOf(subs)}/`;

const only = (name, from, allowed) => ({
  name,
  severity: "error",
  from: { path: from },
  to: { path: "^(?:src|workers)/", pathNot: [from, ...allowed] },
});

const between = ROOMS.flatMap((peers, index) => {
  const below = ROOMS.slice(0, index).flat();
  return peers.map((name) => only(`${name}-imports-below`, room(name), below.length === 0 ? [] : [room(...below)]));
});

const within = Object.entries(SUB_ROOMS).flatMap(([name, subs]) =>
  subs.map((sub, index) => ({
    name: `${name}-${sub}-imports-below`,
    severity: "error",
    from: { path: subRoom(name, sub) },
    to: {
      path: room(name),
      pathNot: [
        subRoom(name, ...subs.slice(0, index + 1)),
        // The kernel's words (errors, ids, json) stand beside its sub-rooms and below them.
        ...(name === "kernel" ? ["^src/kernel/(?!index)[^/]+\\.ts$"] : []),
      ],
    },
  })),
);

/** Parts behind a subpath of their own: they use what everybody can import, and nothing imports them. */
const OPTIONAL = ["subagents"];

const optional = OPTIONAL.flatMap((name) => [
  only(`${name}-imports-what-everybody-can`, room(name), ["^src/index\\.ts$", "^src/plugin/index\\.ts$"]),
  {
    name: `nothing-imports-${name}`,
    severity: "error",
    from: { path: "^(?:src|workers)/", pathNot: room(name) },
    to: { path: room(name) },
  },
]);

module.exports = {
  forbidden: [
    { name: "no-cycles", severity: "error", from: {}, to: { circular: true } },
    ...between,
    ...optional,
    ...within,
    {
      name: "rooms-have-one-door",
      comment: "Import another room from its index.ts.",
      severity: "error",
      from: { path: "^src/([^/]+)/" },
      to: { path: "^src/[^/]+/.+", pathNot: ["^src/$1/", "^src/[^/]+/index\\.ts$"] },
    },
    {
      name: "sub-rooms-have-one-door",
      comment: "Import another sub-room from its index.ts.",
      severity: "error",
      from: { path: "^src/([^/]+)/([^/]+)/" },
      to: { path: "^src/$1/[^/]+/.+", pathNot: ["^src/$1/$2/", "^src/$1/[^/]+/index\\.ts$"] },
    },
    {
      name: "files-beside-sub-rooms-enter-them-by-their-doors",
      comment: "Only a room's own door names files inside its sub-rooms, so that it says what it offers once.",
      severity: "error",
      from: { path: `^src/(${Object.keys(SUB_ROOMS).join("|")})/(?!index)[^/]+\\.ts$` },
      to: { path: "^src/$1/[^/]+/.+", pathNot: "^src/$1/[^/]+/index\\.ts$" },
    },
    {
      name: "kernel-is-pure",
      comment: "No I/O, clock, randomness or threads in the kernel.",
      severity: "error",
      from: { path: room("kernel") },
      to: { dependencyTypes: ["core", "npm"] },
    },
    {
      name: "kernel-knows-time-by-type-only",
      severity: "error",
      from: { path: room("kernel") },
      to: { path: room("async"), dependencyTypesNot: ["type-only"] },
    },
    {
      name: "turns-see-a-narrow-session",
      comment: "What a turn uses of its session is TurnSession; the class is for who opens and parks it.",
      severity: "error",
      from: { path: subRoom("session", "turn") },
      to: { path: "^src/session/state/session\\.ts$" },
    },
    {
      name: "workers-wire-only",
      comment:
        "An entry wires a port to a room's door or to its thread's side, so that a thread loads only what it needs.",
      severity: "error",
      from: { path: "^workers/" },
      to: {
        path: "^src/.+",
        pathNot: ["^src/[^/]+/(?:index|[a-z]+-thread)\\.ts$", "^src/[^/]+/[^/]+/(?:index|[a-z]+-thread)\\.ts$"],
      },
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
