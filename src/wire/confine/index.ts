/** What a thread takes from the code of others, and knows of itself, before it imports any. */
export { boundOutput } from "./bounded-output.js";
export { checkDenials, type Denials, deniedAccess, type ThreadRights, unenforceable } from "./denials.js";
export { covers, grantedPaths, isWithin, realPath, withoutNested } from "./granted-paths.js";
export { closeParentPort, hidePorts } from "./hide-ports.js";
export { type OwnMeasures, ownMeasures } from "./own-measures.js";
export { closeProcessWide } from "./process-wide.js";
