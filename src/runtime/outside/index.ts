/** What sessions have outside of their workers: child processes, and what watches the outside world for them. */
export { Outside } from "./outside.js";
