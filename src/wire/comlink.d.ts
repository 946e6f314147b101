declare module "comlink/dist/esm/node-adapter.mjs" {
  import type { Endpoint } from "comlink";
  export default function nodeEndpoint(port: {
    postMessage(message: unknown, transfer?: readonly unknown[]): void;
    // biome-ignore lint/suspicious/noExplicitAny: Node's emitters type their listeners this way
    on(type: string, listener: (...args: any[]) => void): unknown;
    // biome-ignore lint/suspicious/noExplicitAny: as above
    off(type: string, listener: (...args: any[]) => void): unknown;
    start?(): void;
  }): Endpoint;
}
