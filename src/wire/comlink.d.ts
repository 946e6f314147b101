declare module "comlink/dist/esm/node-adapter.mjs" {
  import type { Endpoint } from "comlink";
  /** What a port must have says `Endpoint` in calls.ts, which the package's own types can name. */
  export default function nodeEndpoint(port: object): Endpoint;
}
