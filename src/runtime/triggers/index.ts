/** Events of the outside world on their way to sessions. */
export * from "./triggers.js";
