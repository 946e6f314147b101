/** The runtime as a host holds it. */
export * from "./troupe.js";
