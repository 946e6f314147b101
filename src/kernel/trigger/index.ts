/** Events of the outside world, and which sessions want to be told of them. */
export * from "./trigger.js";
