export { hookPhase, PhaseProbe, type PhaseStats, recordSince } from "./probe.js";
