import { ignore } from "../../async/index.js";

/** Runtimes of this process that run plugins on threads. */
let holders = 0;

/**
 * SIGUSR1 opens Node's inspector on the loopback interface, where whoever connects runs code in the main thread; a plugin's
 * thread shares the process and the interface. While a runtime with such plugins is open the signal does nothing, unless
 * the program was started with an inspector. Returns what gives the signal back.
 */
export function holdInspectorSignal(): () => void {
  const flags = [...process.execArgv, ...(process.env.NODE_OPTIONS ?? "").split(" ")];
  if (process.platform === "win32" || flags.some((flag) => flag.startsWith("--inspect"))) return ignore;
  if (holders++ === 0) process.on("SIGUSR1", ignore);
  let held = true;
  return () => {
    if (held && --holders === 0) process.off("SIGUSR1", ignore);
    held = false;
  };
}
