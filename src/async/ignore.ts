/** Takes whatever comes and does nothing with it: for errors that another place tells, and listeners nobody set. */
export function ignore(): void {}
