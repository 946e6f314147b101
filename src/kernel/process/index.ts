/** Child processes of sessions: how one is asked for, and what is said of it. */
export * from "./process-request.js";
