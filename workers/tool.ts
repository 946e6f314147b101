import { poolThread } from "../src/tools/pool/pool-thread.js";

// Piscina imports this on each thread of the tool pool. It names the file directly, not the room's door: a pool thread
// needs neither ajv nor Piscina itself, and starts sooner without them.
export default poolThread();
