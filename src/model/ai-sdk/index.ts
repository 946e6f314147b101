/** Language models of the AI SDK. */
export * from "./ai-sdk.js";
