/** Events of the outside world on their way to sessions. */
export * from "./trigger-services.js";
export * from "./triggers.js";
