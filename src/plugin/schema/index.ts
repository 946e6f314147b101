/** Arguments and options: any Standard Schema, or plain JSON Schema. */
export * from "./costly-schema.js";
export * from "./json-schema.js";
export * from "./schema.js";
