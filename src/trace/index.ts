export { hookPhase, PhaseProbe, type PhaseStats, recordMs } from "./probe.js";
