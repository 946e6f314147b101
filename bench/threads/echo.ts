import { type MessagePort, workerData } from "node:worker_threads";

const { echo, ack } = workerData as { readonly echo: MessagePort; readonly ack: MessagePort };

/** Sends back what it gets. */
echo.on("message", (payload) => echo.postMessage(payload));

/** Sends back as little as a hook that has nothing to say. */
ack.on("message", () => ack.postMessage(undefined));
